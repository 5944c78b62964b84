//! Parser of the attributes' arguments. Its errors say what would be right.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Lit, LitBool, LitStr, Path, Token};

/// Most cores an attribute may name: a shard's number is one byte, and one value is reserved.
pub(crate) const CORES_MAX: usize = 255;

/// Every option, as it is written.
const OPTIONS: &str = "`cores = 4`, `cores = \"0-3\"`, `cores = \"auto\"`, `config = \"file\"`, `start_paused = true` and \
                       `crate = \"path\"`";

/// Parsed arguments.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cores: Option<Cores>,
    pub(crate) path: Option<Path>,
    config: Option<LitStr>,
    start_paused: Option<bool>,
}

/// Number of cores, or their processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    Auto,
    Fixed(usize),
    On(Vec<usize>),
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Options> {
        let mut options = Options::default();
        while !input.is_empty() {
            // `crate` is a keyword, so any identifier, not only a free one.
            let name = input.call(Ident::parse_any)?;
            let said_before = match name.to_string().as_str() {
                "cores" => said(&mut options.cores, value(input, &name, parse_cores)?),
                "config" => said(&mut options.config, value(input, &name, parse_file)?),
                "crate" => said(&mut options.path, value(input, &name, parse_path)?),
                "start_paused" => said(&mut options.start_paused, value(input, &name, parse_bool)?),
                other => {
                    let text = format!("unknown option `{other}`: there are {OPTIONS}");
                    return Err(syn::Error::new(name.span(), text));
                }
            };
            if said_before {
                let text = format!("`{name}` is given twice");
                return Err(syn::Error::new(name.span(), text));
            }
            if input.is_empty() {
                break;
            }
            input.parse::<Token![,]>()?;
        }
        Ok(options)
    }
}

impl Options {
    /// Returns the equivalent calls on the builder; `otherwise`: the number of cores where the arguments have none.
    pub(crate) fn calls(&self, otherwise: Option<usize>) -> TokenStream {
        let silent = otherwise.map(Cores::Fixed);
        let cores = match self.cores.as_ref().or(silent.as_ref()) {
            Some(Cores::Fixed(cores)) => quote! { .cores(#cores) },
            Some(Cores::On(list)) => quote! { .processors(&[#(#list),*]) },
            Some(Cores::Auto) | None => TokenStream::new(),
        };
        let config = self.config.iter();
        let paused = self.start_paused.iter();
        quote! { #cores #(.config_file(#config))* #(.start_paused(#paused))* }
    }
}

fn said<T>(field: &mut Option<T>, value: T) -> bool {
    field.replace(value).is_some()
}

fn value<T>(
    input: ParseStream<'_>,
    name: &Ident,
    parse: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<T> {
    if !input.peek(Token![=]) {
        let text = format!("`{name}` needs a value: there are {OPTIONS}");
        return Err(syn::Error::new(name.span(), text));
    }
    input.parse::<Token![=]>()?;
    parse(input)
}

fn parse_cores(input: ParseStream<'_>) -> syn::Result<Cores> {
    let said: Lit = input.parse()?;
    let wrong = |text: &str| Err(syn::Error::new(said.span(), text));
    match &said {
        Lit::Str(text) if text.value() == "auto" => Ok(Cores::Auto),
        Lit::Str(text) => match processors(&text.value()) {
            Ok(list) => Ok(Cores::On(list)),
            Err(problem) => wrong(&problem),
        },
        Lit::Int(number) => match number.base10_parse::<usize>() {
            Ok(cores) if (1..=CORES_MAX).contains(&cores) => Ok(Cores::Fixed(cores)),
            _ => wrong(&format!("`cores` is 1 to {CORES_MAX}, or \"auto\"")),
        },
        _ => wrong(
            "`cores` is a number, such as `cores = 4`, a list of processors, such as `cores = \"0-3\"`, or \
             `cores = \"auto\"`",
        ),
    }
}

/// Parses a list such as `0,2,4-7`.
fn processors(text: &str) -> Result<Vec<usize>, String> {
    let mut list = Vec::new();
    for piece in text.split(',').map(str::trim) {
        let wrong = || {
            format!(
                "`cores` is \"auto\" or a list of processors, such as \"0-3\" or \"0,2,4\"; `{piece}` is neither"
            )
        };
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last - first >= CORES_MAX {
            return Err(wrong());
        }
        for processor in first..=last {
            if list.contains(&processor) {
                return Err(format!("processor {processor} is named twice"));
            }
            list.push(processor);
        }
    }
    if list.len() > CORES_MAX {
        return Err(format!("these are {} cores, of {CORES_MAX}", list.len()));
    }
    Ok(list)
}

fn parse_file(input: ParseStream<'_>) -> syn::Result<LitStr> {
    let said: Lit = input.parse()?;
    match said {
        Lit::Str(text) if !text.value().is_empty() => Ok(text),
        other => Err(syn::Error::new(
            other.span(),
            "`config` is the path of a file, such as `config = \"server.toml\"`",
        )),
    }
}

fn parse_bool(input: ParseStream<'_>) -> syn::Result<bool> {
    let said: Lit = input.parse()?;
    match said {
        Lit::Bool(LitBool { value, .. }) => Ok(value),
        other => Err(syn::Error::new(
            other.span(),
            "`start_paused` is `true` or `false`",
        )),
    }
}

fn parse_path(input: ParseStream<'_>) -> syn::Result<Path> {
    let said: Lit = input.parse()?;
    let wrong = || {
        syn::Error::new(
            said.span(),
            "`crate` is the path of the janus crate, such as `crate = \"janus\"`",
        )
    };
    match &said {
        Lit::Str(text) => text.parse().map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}
