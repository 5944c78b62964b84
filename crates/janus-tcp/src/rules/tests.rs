//! Parts of the rules, for tests of other rooms.

use crate::rules::Rules;
use crate::rules::config::Config;
use crate::rules::interface::Interface;

impl Rules {
    pub(crate) fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    pub(crate) fn interface_mut(&mut self) -> &mut Interface {
        &mut self.interface
    }
}
