//! What an operator sees and changes: the command line, and its audit lines.

mod alarms;
mod audit;
mod command_line;
