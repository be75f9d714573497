//! Everything that is wrong with a template, and not only the first of it.

/// Problems, each in a line.
#[derive(Default)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Adds these lines. A parameter that has no value is named once, in whatever places it is used.
    pub fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            let cause = line.find("the parameter ").map_or(line, |at| &line[at..]);
            if !self.0.iter().any(|known| known.ends_with(cause)) {
                self.0.push(line.to_owned());
            }
        }
    }

    /// What was read, or its problem.
    pub fn unless<T>(&mut self, read: Result<T, String>) -> Option<T> {
        read.map_err(|lines| self.add(&lines)).ok()
    }

    /// # Errors
    /// If there are problems.
    pub fn none(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0.join("\n")) }
    }
}

/// These lines, each with the place of its problem.
pub fn at(place: &str, lines: &str) -> String {
    lines.lines().map(|line| format!("{place}: {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_named_once() {
        let mut problems = Problems::default();
        problems.add(&at("resource A", "its Queue: gone\nthe parameter P has no value"));
        problems.add(&at("resource B", "its Queue: gone\nthe parameter P has no value"));
        let expected = "resource A: its Queue: gone\nresource A: the parameter P has no value\nresource B: its Queue: gone";
        assert_eq!(problems.none(), Err(expected.to_owned()));
        assert_eq!(Problems::default().none(), Ok(()));
    }
}
