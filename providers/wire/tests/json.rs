//! Newline-delimited JSON and JSON arrays: every split, limits, errors, the end of a body.

use settled_provider_wire::{Frame, FrameError, JsonArray, JsonLines};

/// The two framings have the same shape of API.
trait Framing: Sized {
    fn with(limit: usize) -> Self;
    fn push(&mut self, bytes: &[u8]);
    fn pull(&mut self) -> Option<Result<Frame<'_>, FrameError>>;
    fn finish(&mut self) -> Option<Result<Frame<'_>, FrameError>>;
}

macro_rules! framing {
    ($name:ty) => {
        impl Framing for $name {
            fn with(limit: usize) -> Self {
                Self::with_limit(limit)
            }
            fn push(&mut self, bytes: &[u8]) {
                Self::push(self, bytes);
            }
            fn pull(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
                Self::pull(self)
            }
            fn finish(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
                Self::finish(self)
            }
        }
    };
}

framing!(JsonLines);
framing!(JsonArray);

fn show(frame: Result<Frame<'_>, FrameError>) -> String {
    match frame {
        Ok(frame) if frame.cut => format!("{}@{} cut", frame.text, frame.offset),
        Ok(frame) => format!("{}@{}", frame.text, frame.offset),
        Err(error) => format!("!{error}"),
    }
}

fn decode<F: Framing>(limit: usize, chunks: &[&[u8]]) -> Vec<String> {
    let mut framing = F::with(limit);
    let mut out = Vec::new();
    for chunk in chunks {
        framing.push(chunk);
        while let Some(frame) = framing.pull() {
            out.push(show(frame));
        }
    }
    out.extend(framing.finish().map(show));
    assert!(framing.finish().is_none(), "it ends once");
    out
}

fn check<F: Framing>(limit: usize, body: &[u8], expected: &[&str]) {
    assert_eq!(decode::<F>(limit, &[body]), expected, "{:?}", String::from_utf8_lossy(body));
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(decode::<F>(limit, &bytes), expected, "byte by byte: {body:?}");
    for first in 0..=body.len() {
        let (head, tail) = body.split_at(first);
        assert_eq!(decode::<F>(limit, &[head, tail]), expected, "split at {first}: {body:?}");
    }
}

#[test]
fn lines() {
    let check = |body: &[u8], expected: &[&str]| check::<JsonLines>(20, body, expected);
    check(b"{}\n{\"a\":1}\n", &["{}@0", "{\"a\":1}@3"]);
    check(b"{}\r\n\r\n  {\"a\":1} \n\n", &["{}@0", "{\"a\":1}@8"]);
    check(b"{}\n{\"a\":", &["{}@0", "{\"a\":@3 cut"]);
    check("\"é\"\n".as_bytes(), &["\"é\"@0"]);
    check(b"{}\n\"\xc3", &["{}@0", "\"@3 cut"]);
    check(b"{}\n\"\xff\"\n{}\n", &["{}@0", "!byte 4 of the body is not UTF-8"]);
    check(b"{}\n123456789012345678901", &["{}@0", "!what begins at byte 3 of the body is longer than 20 bytes"]);
    check(b"{}\n123456789012345678901\n", &["{}@0", "!what begins at byte 3 of the body is longer than 20 bytes"]);
    check(b"", &[]);
    check(b"\n \n", &[]);
}

#[test]
fn arrays() {
    let check = |body: &[u8], expected: &[&str]| check::<JsonArray>(20, body, expected);
    check(b"[{\"a\":[1,{}]}\r\n,\n{\"b\":\"]}\\\"\"}]\n", &["{\"a\":[1,{}]}@1", "{\"b\":\"]}\\\"\"}@17"]);
    check(b"[]", &[]);
    check(b"[[1],[[2]]]", &["[1]@1", "[[2]]@5"]);
    check(b"7 \n", &["7@0"]);
    check(b"[1]]", &["1@1", "!byte 3 of the body is ']', which may not stand between two elements"]);
    check(b"{}{}", &["{}@0", "!byte 2 of the body is '{', which may not stand between two elements"]);
    check(b"{\"error\":1}", &["{\"error\":1}@0"]);
    check(b"[1, \"a,b\" ,true,-2.5e3]", &["1@1", "\"a,b\"@4", "true@11", "-2.5e3@16"]);
    check(b"[{}, {\"a\":\"", &["{}@1", "{\"a\":\"@5 cut"]);
    check(b"[{}", &["{}@1"]);
    check(b"\xef\xbb\xbf[{}]", &["{}@4"]);
    check(b"[{}; {}]", &["{}@1", "!byte 3 of the body is ';', which may not stand between two elements"]);
    check("[{\"é\":1}]".as_bytes(), &["{\"é\":1}@1"]);
    check(b"[{\"\xff\":1}, {}]", &["!byte 3 of the body is not UTF-8"]);
    check(b"[{\"a\":\"23456789012345\"}]", &["!what begins at byte 1 of the body is longer than 20 bytes"]);
    check(b"[                              {}]", &["{}@31"]);
}
