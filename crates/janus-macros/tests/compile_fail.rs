//! What a mistake in an attribute looks like to whoever made it: the compiler's whole answer, for each. Where a message is
//! changed on purpose, `TRYBUILD=overwrite cargo test -p janus-macros` writes the answers anew.

#[test]
fn mistakes_are_shown_where_they_are_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
