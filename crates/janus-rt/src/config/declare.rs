//! The macro behind the list of keys: from one declaration per key it makes what one source says ([`Partial`](super::Partial)), what
//! is decided ([`Settings`](super::Settings)), and a row of the table ([`Key`]) for the file, the environment, `janus config`, reloads
//! and the manual. No key stands here.

use super::{Partial, Settings};

/// One setting, as `keys!` declares it.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Lines of documentation.
    pub(super) doc: &'static [&'static str],
    /// Describes the values the key takes.
    pub(super) values: fn() -> String,
    pub(super) read: fn(&mut Partial, &str) -> Result<(), String>,
    /// Returns the value in force; `None` where there is none.
    pub(super) show: fn(&Settings) -> Option<String>,
    /// Brings the value of other settings over.
    pub(crate) copy: fn(&mut Settings, &Settings),
    /// Part of the running system that takes a new value; `None`: the value holds from the next start.
    pub(crate) live: Option<Change>,
    /// Of use to those who measure or try things out.
    pub(super) expert: bool,
    /// The default in words, where it is no value.
    pub(super) usual: Option<&'static str>,
}

impl Key {
    pub(super) const fn live(mut self, change: Change) -> Key {
        self.live = Some(change);
        self
    }

    pub(super) const fn expert(mut self) -> Key {
        self.expert = true;
        self
    }

    pub(super) const fn usually(mut self, words: &'static str) -> Key {
        self.usual = Some(words);
        self
    }
}

/// Parts of a running runtime that take new values of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Backlog,
    SpeculativeAccept,
    Balance,
    BlockedLimit,
    BlockingThreads,
    CloseTime,
    NameServers,
    ReceiveBuffers,
    Rules,
    SendBuffers,
    TraceFilter,
}

/// Declares the keys. A declaration is
///
/// ```text
/// /// Documentation, for the manual and for the field.
/// field _unit: Form = default, mark argument, mark;
/// ```
///
/// The key's name is the field's and the unit's together. Without a default, the field of [`Settings`] is an `Option`. Marks are methods
/// of [`Key`].
macro_rules! keys {
    (@type $form:ty) => { Option<<$form as Form>::Value> };
    (@type $form:ty = $default:expr) => { <$form as Form>::Value };
    (@fill $value:expr) => { $value };
    (@fill $value:expr, $default:expr) => { $value.unwrap_or_else(|| $default) };
    (@show $form:ty, $value:expr) => { $value.as_ref().and_then(<$form>::show) };
    (@show $form:ty, $value:expr, $default:expr) => { <$form>::show(&$value) };
    ($(
        $(#[doc = $doc:literal])+
        $field:ident $($unit:ident)?: $form:ty $(= $default:expr)? $(, $mark:ident $($argument:expr)?)*;
    )+) => {
        /// Settings of one source; `None` where the source is silent. Later sources win field by field.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Partial {
            /// What file and environment say, in order: of two values of a key the later counts.
            pub(crate) entries: Vec<Entry>,
            /// The builder's, in place of the keys `admission_…`.
            pub(crate) given_rules: Option<Rules>,
            /// The builder's, in place of the keys `faults_…`.
            pub(crate) given_faults: Option<Faults>,
            $($(#[doc = $doc])+ pub(crate) $field: Option<<$form as Form>::Value>,)+
        }

        /// Everything decided.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            pub(crate) given_rules: Option<Rules>,
            pub(crate) faults: LinkFaults,
            /// Threads are pinned although no processors are named.
            pub(crate) pin: bool,
            /// The right by which a daemon is to take the program in.
            pub(crate) permit: Option<janus_io::member::Permit>,
            $($(#[doc = $doc])+ pub(crate) $field: keys!(@type $form $(= $default)?),)+
        }

        impl Partial {
            /// Lays `over` on top of `self`.
            pub(crate) fn overlay(self, over: Partial) -> Partial {
                Partial {
                    entries: [self.entries, over.entries].concat(),
                    given_rules: over.given_rules.or(self.given_rules),
                    given_faults: over.given_faults.or(self.given_faults),
                    $($field: over.$field.or(self.$field),)+
                }
            }

            /// Fills the silent fields with their defaults.
            pub(super) fn fill(self, faults: LinkFaults, pin: bool) -> Settings {
                Settings {
                    given_rules: self.given_rules,
                    faults,
                    pin,
                    permit: None,
                    $($field: keys!(@fill self.$field $(, $default)?),)+
                }
            }
        }

        /// Every key, in the order of the manual.
        pub(crate) const KEYS: &[Key] = &[$(
            Key {
                name: concat!(stringify!($field) $(, stringify!($unit))?),
                doc: &[$($doc),+],
                values: <$form as Form>::values,
                read: |partial, text| {
                    partial.$field = Some(<$form>::read(text)?);
                    Ok(())
                },
                show: |settings| keys!(@show $form, settings.$field $(, $default)?),
                copy: |to, from| to.$field.clone_from(&from.$field),
                live: None,
                expert: false,
                usual: None,
            }
            $(.$mark($($argument)?))*,
        )+];
    };
}

pub(super) use keys;
