//! What a program should be told although nothing failed. Rare by nature: each thing is said once for each kind of task.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kinds of tasks that are remembered, so that each is told of once.
const REMEMBERED_MAX: usize = 1024;

/// Something that a program should know of, and that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A task's future is large: every task of that kind takes so much memory for as long as it lives.
    LargeFuture {
        /// The future's type.
        task: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// A task has had its core to itself for long: nothing else happens there meanwhile.
    CoreBlocked {
        /// Which core, from 0.
        core: usize,
        /// The type of the future that is being polled.
        task: &'static str,
        /// For how long, at least; without what its thread waited for a processor.
        time: Duration,
    },
    /// A task panicked because it used what needs tokio's runtime, and there is none.
    NeedsTokio {
        /// The future's type.
        task: &'static str,
    },
}

/// Said to somebody whose code needs tokio's runtime.
pub(crate) const GET_TOKIO: &str = if cfg!(feature = "tokio") {
    "Janus runs inside of tokio unless `tokio = false` says otherwise, as it does here"
} else {
    "build janus-rt with its feature `tokio` (docs/tokio.md), or use janus::time and janus::net"
};

/// What a panic said, if it said it in words.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

/// Whether that is what a panic was for, by tokio's words.
pub(crate) fn wants_tokio(panic: &(dyn Any + Send)) -> bool {
    words_of(panic).is_some_and(|text| {
        text.contains("from the context of a Tokio") || text.contains("from the context of Tokio")
    })
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::LargeFuture { task, bytes } => write!(
                f,
                "the future of a task takes {bytes} bytes ({}): keep large values in a Box, and buffers out of what lives \
                 across an await",
                readable(task)
            ),
            Warning::CoreBlocked { core, task, time } => write!(
                f,
                "core {core} has been polling one task for {} ms ({}): what blocks belongs into janus::spawn_blocking, what \
                 takes long should await janus::yield_now now and then",
                time.as_millis(),
                readable(task)
            ),
            Warning::NeedsTokio { task } => write!(
                f,
                "a task panicked for want of tokio's runtime ({}): {GET_TOKIO}",
                readable(task)
            ),
        }
    }
}

/// A type's name without what only we know of.
fn readable(task: &str) -> String {
    const OURS: [&str; 2] = [
        "janus::runtime::main_task::MainTask<",
        "janus::task::spawn_on::Sent<",
    ];
    let ours = OURS.iter().find_map(|ours| task.strip_prefix(ours));
    let inner = ours.and_then(|rest| rest.strip_suffix('>'));
    inner.unwrap_or(task).replace("::{{closure}}", "")
}

/// Who is told.
pub(crate) type Hook = Box<dyn Fn(&Warning) + Send + Sync>;

/// Where warnings of a runtime go.
pub(crate) struct Warnings {
    hook: Hook,
    told: Mutex<BTreeSet<(u8, &'static str)>>,
}

impl Warnings {
    /// To the program, if it wants them; else they are printed.
    pub(crate) fn new(hook: Option<Hook>) -> Warnings {
        Warnings {
            hook: hook.unwrap_or_else(|| Box::new(|warning| eprintln!("janus: {warning}"))),
            told: Mutex::default(),
        }
    }

    pub(crate) fn tell(&self, warning: &Warning) {
        let what = match warning {
            Warning::LargeFuture { task, .. } => (0, *task),
            Warning::CoreBlocked { task, .. } => (1, *task),
            Warning::NeedsTokio { task } => (2, *task),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = told.len() < REMEMBERED_MAX && told.insert(what);
        drop(told);
        if news {
            (self.hook)(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_kind_is_told_of_once() {
        let heard: Arc<Mutex<Vec<Warning>>> = Arc::default();
        let to = heard.clone();
        let hook: Hook = Box::new(move |warning| to.lock().unwrap().push(warning.clone()));
        let warnings = Warnings::new(Some(hook));
        let large = |task| Warning::LargeFuture { task, bytes: 9000 };
        let blocked = |task| Warning::CoreBlocked {
            core: 1,
            task,
            time: Duration::from_millis(120),
        };
        for _ in 0..3 {
            warnings.tell(&large("a"));
            warnings.tell(&blocked("a"));
            warnings.tell(&large("b"));
        }
        assert_eq!(
            *heard.lock().unwrap(),
            [large("a"), blocked("a"), large("b")]
        );
    }

    #[test]
    fn the_text_names_the_program_s_own_code() {
        let warning = Warning::CoreBlocked {
            core: 2,
            task: "janus::runtime::main_task::MainTask<shop::main::{{closure}}>",
            time: Duration::from_millis(150),
        };
        let text = warning.to_string();
        assert!(text.starts_with("core 2 has been polling one task for 150 ms (shop::main):"));
        let warning = Warning::LargeFuture {
            task: "shop::serve::{{closure}}",
            bytes: 20_000,
        };
        assert!(warning.to_string().contains("20000 bytes (shop::serve)"));
    }
}
