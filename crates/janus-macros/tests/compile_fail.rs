//! Errors of mistakes in an attribute: the compiler's whole output, for each. After a message was changed on purpose, `TRYBUILD=overwrite
//! cargo test -p janus-macros` writes the expected outputs.

#[test]
fn mistakes_are_shown_where_they_are_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
