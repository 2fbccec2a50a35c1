//! Durable rows a second, against a bare group commit of the same schema.

fn main() {}
