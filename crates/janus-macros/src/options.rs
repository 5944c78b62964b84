//! What stands in the brackets of an attribute, parsed. Says for every mistake what would be right.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Lit, LitStr, Path, Token};

/// The most cores an attribute may name; a shard's number is one byte.
pub(crate) const CORES_MAX: usize = 256;

/// What was said.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cores: Option<Cores>,
    pub(crate) path: Option<Path>,
}

/// How many cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    Auto,
    Fixed(usize),
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Options> {
        let mut options = Options::default();
        while !input.is_empty() {
            // `crate` is a keyword, so any identifier, not only a free one.
            let name = input.call(Ident::parse_any)?;
            let twice = || syn::Error::new(name.span(), format!("`{name}` is given twice"));
            match name.to_string().as_str() {
                "cores" => {
                    input.parse::<Token![=]>()?;
                    if options.cores.replace(parse_cores(input)?).is_some() {
                        return Err(twice());
                    }
                }
                "crate" => {
                    input.parse::<Token![=]>()?;
                    if options.path.replace(parse_path(input)?).is_some() {
                        return Err(twice());
                    }
                }
                other => {
                    return Err(syn::Error::new(
                        name.span(),
                        format!(
                            "unknown option `{other}`: there are `cores = 4`, `cores = \"auto\"` and `crate = \"path\"`"
                        ),
                    ));
                }
            }
            if input.is_empty() {
                break;
            }
            input.parse::<Token![,]>()?;
        }
        Ok(options)
    }
}

fn parse_cores(input: ParseStream<'_>) -> syn::Result<Cores> {
    let said: Lit = input.parse()?;
    match &said {
        Lit::Str(text) if text.value() == "auto" => Ok(Cores::Auto),
        Lit::Int(number) => match number.base10_parse::<usize>() {
            Ok(cores) if (1..=CORES_MAX).contains(&cores) => Ok(Cores::Fixed(cores)),
            _ => Err(syn::Error::new(
                said.span(),
                format!("`cores` is 1 to {CORES_MAX}, or \"auto\""),
            )),
        },
        _ => Err(syn::Error::new(
            said.span(),
            "`cores` is a number, such as `cores = 4`, or `cores = \"auto\"`",
        )),
    }
}

fn parse_path(input: ParseStream<'_>) -> syn::Result<Path> {
    let text: LitStr = input.parse()?;
    text.parse().map_err(|_| {
        syn::Error::new(
            text.span(),
            "`crate` is the path of the janus crate, such as `crate = \"janus\"`",
        )
    })
}
