use std::fmt;

#[derive(Debug, Clone)]
pub struct Order {
    pub number: u32,
}

pub enum State {
    Open,
    Closed(String),
}

pub trait Priced {
    fn price(&self) -> u32;
}

impl Priced for Order {
    fn price(&self) -> u32 {
        self.number
    }
}

impl<'a> fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

macro_rules! order {
    ($n:expr) => {
        Order { number: $n }
    };
}

mod tests {
    #[test]
    fn adds() {
        let mut sum = 0;
        sum += 1;
        assert_eq!(sum, 1);
    }
}
