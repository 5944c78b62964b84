//! Expands an `async fn` to a plain `fn` that runs it. A mistake becomes a `compile_error!` at its place, and the function itself stays in
//! the output, so that one mistake is not reported as three.

#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ItemFn, ReturnType, Safety};

use crate::options::Options;

/// The attribute that is expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Main,
    Test,
}

impl Door {
    fn name(self) -> &'static str {
        match self {
            Door::Main => "#[janus::main]",
            Door::Test => "#[janus::test]",
        }
    }
}

/// Returns the expansion of the attribute.
pub(crate) fn expand(door: Door, options: TokenStream, item: TokenStream) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(_) => {
            let message = format!("{} stands before an `async fn`", door.name());
            let error = Error::new(item.span(), message).into_compile_error();
            return quote! { #error #item };
        }
    };
    let checked = syn::parse2::<Options>(options).and_then(|options| {
        check(door, &function)?;
        Ok(options)
    });
    match checked {
        Ok(options) => generate(door, &options, function),
        Err(error) => {
            let error = error.into_compile_error();
            let stand_in = stand_in(&function);
            quote! { #error #stand_in }
        }
    }
}

/// Returns every mistake in the signature, in one error.
fn check(door: Door, function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    let name = door.name();
    let mut wrong: Option<Error> = None;
    let mut add = |span: proc_macro2::Span, message: String| {
        let error = Error::new(span, message);
        match &mut wrong {
            Some(all) => all.combine(error),
            None => wrong = Some(error),
        }
    };
    if signature.asyncness.is_none() {
        add(
            signature.fn_token.span(),
            format!(
                "{name} needs an `async fn`: write `async fn {}()`",
                signature.ident
            ),
        );
    }
    if !signature.inputs.is_empty() {
        add(
            signature.inputs.span(),
            format!(
                "{name} takes a function without arguments: read them inside, with `std::env::args()`"
            ),
        );
    }
    if !signature.generics.params.is_empty() {
        add(
            signature.generics.span(),
            format!("{name} takes a function without generic parameters: nobody could choose them"),
        );
    }
    if let Safety::Unsafe(word) = &signature.safety {
        add(word.span(), format!("{name} takes a safe function"));
    }
    if let Some(abi) = &signature.abi {
        add(abi.span(), format!("{name} takes a plain Rust function"));
    }
    if let Some(constness) = &signature.constness {
        add(
            constness.span(),
            format!("{name} takes a function that is not `const`"),
        );
    }
    if door == Door::Main && signature.ident != "main" {
        add(
            signature.ident.span(),
            format!(
                "{name} stands before `async fn main`, not `{}`",
                signature.ident
            ),
        );
    }
    if door == Door::Test
        && let Some(test) = function.attrs.iter().find(|a| a.path().is_ident("test"))
    {
        add(
            test.span(),
            "the test would run twice: leave `#[test]` out, `#[janus::test]` brings it".into(),
        );
    }
    match wrong {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Makes a function of that name after a mistake, so that only the mistake is reported.
fn stand_in(function: &ItemFn) -> TokenStream {
    let (vis, name) = (&function.vis, &function.sig.ident);
    quote! {
        #[allow(dead_code)]
        #vis fn #name() {}
    }
}

fn generate(door: Door, options: &Options, function: ItemFn) -> TokenStream {
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
        ..
    } = function;
    let name = &sig.ident;
    let output = &sig.output;
    let krate = match &options.path {
        Some(path) => quote! { #path },
        None => quote! { ::janus },
    };
    let inner = quote! { async fn #name() #output #block };
    match door {
        Door::Main => {
            let run = run(&krate, &options.calls(None), &sig.output, name);
            quote! {
                #(#attrs)*
                #vis fn #name() -> ::std::process::ExitCode {
                    #inner
                    let run = || -> #krate::Result<()> { #run };
                    #krate::exit_code(run())
                }
            }
        }
        Door::Test => {
            let calls = options.calls(Some(1));
            let run = run(
                &krate,
                &quote! { .ignore_environment() #calls },
                &sig.output,
                name,
            );
            quote! {
                #[::core::prelude::v1::test]
                #(#attrs)*
                #vis fn #name() {
                    #inner
                    let run = || -> #krate::Result<()> { #run };
                    if let ::core::result::Result::Err(error) = run() {
                        ::core::panic!("{error}");
                    }
                }
            }
        }
    }
}

/// Builds the runtime and runs the function on it. A return type that is no result is reported at the return type, not at the attribute.
fn run(
    krate: &TokenStream,
    calls: &TokenStream,
    output: &ReturnType,
    name: &syn::Ident,
) -> TokenStream {
    let span = match output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    quote_spanned! { span => #krate::Runtime::builder() #calls .build()?.run(#name) }
}
