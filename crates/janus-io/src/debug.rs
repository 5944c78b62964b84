//! `Debug` for public types whose fields say nothing to a reader: the name.

macro_rules! opaque {
    ($([$($generics:tt)*])? $name:ident $($params:tt)*) => {
        impl $(<$($generics)*>)? std::fmt::Debug for $name $($params)* {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use opaque;
