//! Why a runtime was not built, by what stood in the way.

use std::error::Error;
use std::fmt;

use super::BoxError;
use crate::config::ConfigError;

/// Why [`Builder::build`](crate::Builder::build) built no runtime. The message says what to do next.
///
/// ```
/// use janus::{BuildError, Runtime};
///
/// let built = Runtime::builder().ignore_environment().address("127.0.0.1/8".parse().unwrap()).build();
/// assert!(matches!(built, Err(BuildError::Config(_))));
/// ```
#[non_exhaustive]
pub enum BuildError {
    /// A setting is not understood, or does not go with the others.
    Config(ConfigError),
    /// The device was not opened.
    Device(BoxError),
    /// No server gave an address.
    Lease(BoxError),
    /// The system gave no memory, thread, descriptor or random number.
    System(BoxError),
}

impl BuildError {
    pub(super) fn system(error: impl Into<BoxError>) -> BuildError {
        BuildError::System(error.into())
    }

    fn inner(&self) -> &(dyn Error + 'static) {
        match self {
            BuildError::Config(error) => error,
            BuildError::Device(error) | BuildError::Lease(error) | BuildError::System(error) => {
                &**error
            }
        }
    }
}

impl From<ConfigError> for BuildError {
    fn from(error: ConfigError) -> BuildError {
        BuildError::Config(error)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.inner(), f)
    }
}

/// Prints like `Display`: a `main` that returns the error prints it this way.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for BuildError {
    /// Returns the cause of the error that the variant holds, whose own message `Display` has shown.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner().source()
    }
}

#[cfg(test)]
mod tests {
    use super::BuildError;
    use crate::runtime::{BackendChoice, Builder};

    fn refused(builder: Builder) -> BuildError {
        let built = builder.ignore_environment().cores(1).build();
        built.expect_err("it is refused")
    }

    #[test]
    fn the_variant_says_what_stood_in_the_way() {
        let wrong = refused(Builder::default().address("127.0.0.1/8".parse().unwrap()));
        assert!(matches!(wrong, BuildError::Config(_)), "{wrong}");
        let running = Builder::default().ignore_environment().cores(1).build();
        let handle = running.expect("a runtime").handle();
        let timeless = refused(Builder::default().time_of(&handle));
        assert!(matches!(timeless, BuildError::Config(_)), "{timeless}");
        let name = "a name that is too long for an interface".to_owned();
        let device = Builder::default().address("192.0.2.1/24".parse().unwrap());
        let device = refused(device.backend(BackendChoice::Tap { name }));
        assert!(matches!(device, BuildError::Device(_)), "{device}");
    }
}
