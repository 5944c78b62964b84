//! `Debug` for types over a [`Transport`], which has none itself: what the named methods return.

use core::fmt;

use crate::{
    Body, BodyWriter, Connection, Request, RequestBody, Responder, Response, ResponseHead,
    Transport,
};

macro_rules! shown {
    ($($name:ident<$($life:lifetime,)? S>($($method:ident),*);)*) => {$(
        impl<S: Transport> fmt::Debug for $name<$($life,)? S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($method), &self.$method()))*
                    .finish_non_exhaustive()
            }
        }
    )*};
}

shown! {
    Body<'_, S>(remaining);
    BodyWriter<'_, S>();
    Connection<S>(is_open);
    Request<'_, S>(method, target);
    RequestBody<'_, S>();
    Responder<'_, S>();
    Response<'_, S>(status, remaining);
    ResponseHead<'_, S>();
}

#[cfg(feature = "hyper")]
impl fmt::Debug for crate::hyper::RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}
