use super::*;
use quote::quote;

fn made(door: Door, options: TokenStream, item: TokenStream) -> String {
    let out = expand(door, options, item);
    let file: syn::File = syn::parse2(out).expect("the output is Rust");
    quote! { #file }.to_string()
}

/// The messages of the `compile_error!`s.
fn errors(door: Door, options: TokenStream, item: TokenStream) -> Vec<String> {
    let file: syn::File = syn::parse2(expand(door, options, item)).expect("the output is Rust");
    let message = |item: &syn::Item| match item {
        syn::Item::Macro(call) => call.mac.parse_body::<syn::LitStr>().ok(),
        _ => None,
    };
    file.items
        .iter()
        .filter_map(message)
        .map(|text| text.value())
        .collect()
}

#[test]
fn main_becomes_a_plain_function_that_runs_it_on_every_core() {
    let out = made(
        Door::Main,
        quote! {},
        quote! { async fn main() -> Result<(), Oops> { go().await } },
    );
    assert!(
        out.contains("fn main () -> :: std :: process :: ExitCode"),
        "{out}"
    );
    assert!(out.contains(":: janus :: exit_code (run ())"), "{out}");
    assert!(
        out.contains("async fn main () -> Result < () , Oops > { go () . await }"),
        "{out}"
    );
    assert!(
        out.contains(":: janus :: Runtime :: builder () . build () ? . run (main)"),
        "{out}"
    );
}

#[test]
fn cores_and_crate_are_heard() {
    let out = made(
        Door::Main,
        quote! { cores = 4, crate = "renamed::janus", },
        quote! { async fn main() {} },
    );
    assert!(
        out.contains("renamed :: janus :: Runtime :: builder () . cores (4usize)"),
        "{out}"
    );
    let out = made(
        Door::Main,
        quote! { cores = "auto" },
        quote! { async fn main() {} },
    );
    assert!(!out.contains("cores"), "{out}");
}

#[test]
fn a_test_stands_alone_on_one_core_unless_told_otherwise() {
    let item = quote! { #[should_panic(expected = "x")] #[ignore] async fn breaks() {} };
    let out = made(Door::Test, quote! {}, item.clone());
    assert!(out.contains("prelude :: v1 :: test"), "{out}");
    assert!(
        out.contains("should_panic") && out.contains("ignore"),
        "{out}"
    );
    assert!(
        out.contains(". ignore_environment () . cores (1usize)"),
        "{out}"
    );
    let out = made(Door::Test, quote! { cores = 3 }, item.clone());
    assert!(
        out.contains(". ignore_environment () . cores (3usize)"),
        "{out}"
    );
    let out = made(Door::Test, quote! { cores = "auto" }, item);
    assert!(out.contains(". ignore_environment () . build ()"), "{out}");
}

#[test]
fn processors_a_file_and_a_clock_are_heard() {
    let out = made(
        Door::Main,
        quote! { cores = "0-2, 5", config = "server.toml" },
        quote! { async fn main() {} },
    );
    assert!(
        out.contains(
            "builder () . processors (& [0usize , 1usize , 2usize , 5usize]) . config_file (\"server.toml\") . build ()"
        ),
        "{out}"
    );
    let out = made(
        Door::Test,
        quote! { start_paused = true },
        quote! { async fn t() {} },
    );
    assert!(
        out.contains(". ignore_environment () . cores (1usize) . start_paused (true) . build ()"),
        "{out}"
    );
}

#[test]
fn mistakes_say_what_would_be_right() {
    let main = |options, item| errors(Door::Main, options, item).join("; ");
    assert!(main(quote! {}, quote! { fn main() {} }).contains("write `async fn main()`"));
    assert!(main(quote! {}, quote! { async fn main(port: u16) {} }).contains("without arguments"));
    assert!(main(quote! {}, quote! { async fn main<T>() {} }).contains("generic"));
    assert!(main(quote! {}, quote! { async fn start() {} }).contains("not `start`"));
    assert!(main(quote! {}, quote! { struct Main; }).contains("before an `async fn`"));
    let good = quote! { async fn main() {} };
    assert!(main(quote! { cores = 0 }, good.clone()).contains("1 to 255"));
    assert!(main(quote! { cores = 256 }, good.clone()).contains("1 to 255"));
    assert!(main(quote! { cores = "many" }, good.clone()).contains("`many` is neither"));
    assert!(main(quote! { cores = "3-1" }, good.clone()).contains("`3-1` is neither"));
    assert!(main(quote! { cores = "" }, good.clone()).contains("a list of processors"));
    assert!(main(quote! { cores = "0-1000000" }, good.clone()).contains("is neither"));
    assert!(main(quote! { cores = "0-3,2" }, good.clone()).contains("processor 2 is named twice"));
    assert!(main(quote! { cores = 1.5 }, good.clone()).contains("`cores` is a number"));
    assert!(main(quote! { config = 4 }, good.clone()).contains("path of a file"));
    assert!(main(quote! { config = "" }, good.clone()).contains("path of a file"));
    assert!(main(quote! { start_paused = "yes" }, good.clone()).contains("`true` or `false`"));
    assert!(
        main(
            quote! { start_paused = true, start_paused = true },
            good.clone()
        )
        .contains("twice")
    );
    assert!(main(quote! { cores = 1, cores = 2 }, good.clone()).contains("twice"));
    assert!(main(quote! { threads = 4 }, good.clone()).contains("unknown option `threads`"));
    assert!(main(quote! { crate = "no path" }, good).contains("path of the janus crate"));
    let test = errors(Door::Test, quote! {}, quote! { #[test] async fn t() {} });
    assert!(test.join("").contains("twice"));
}

#[test]
fn several_mistakes_are_reported_at_once() {
    let found = errors(Door::Main, quote! {}, quote! { unsafe fn go(x: u8) {} });
    assert_eq!(found.len(), 4, "{found:?}");
}
