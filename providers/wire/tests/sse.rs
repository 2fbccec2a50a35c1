//! Server-sent events: the standard's cases, every split of a corpus, limits, errors, the end of a body.

use settled_provider_wire::{FrameErrorKind, SseDecoder, SseItem};

/// What a decoder gave, in one line each.
fn decode(decoder: &mut SseDecoder, chunks: &[&[u8]]) -> Vec<String> {
    let mut out = Vec::new();
    let show = |event: settled_provider_wire::SseEvent<'_>| {
        let mut line = format!("{}|{}|{}", event.event, event.data, event.offset);
        if let Some(id) = event.id {
            line += &format!("|id={id}");
        }
        if let Some(retry) = event.retry {
            line += &format!("|retry={retry}");
        }
        if event.cut {
            line += "|cut";
        }
        line
    };
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(item) = decoder.pull() {
            out.push(match item {
                Ok(SseItem::Event(event)) => show(event),
                Ok(SseItem::Comment(text)) => format!("#{text}"),
                Err(error) => format!("!{error}"),
            });
        }
    }
    if let Some(last) = decoder.finish() {
        out.push(match last {
            Ok(event) => show(event),
            Err(error) => format!("!{error}"),
        });
    }
    assert!(decoder.finish().is_none(), "it ends once");
    out
}

/// Whole, byte by byte, with an empty chunk between, and at every split into two and three: always the same.
fn check(body: &[u8], expected: &[&str]) {
    let whole = decode(&mut SseDecoder::new(), &[body]);
    assert_eq!(whole, expected, "{:?}", String::from_utf8_lossy(body));
    let bytes: Vec<&[u8]> = body.chunks(1).flat_map(|byte| [byte, &[]]).collect();
    assert_eq!(decode(&mut SseDecoder::new(), &bytes), expected, "byte by byte: {body:?}");
    for first in 0..=body.len() {
        let (head, tail) = body.split_at(first);
        assert_eq!(decode(&mut SseDecoder::new(), &[head, tail]), expected, "split at {first}: {body:?}");
        for second in (0..=tail.len()).step_by(3) {
            let (middle, tail) = tail.split_at(second);
            let chunks = [head, middle, tail];
            assert_eq!(decode(&mut SseDecoder::new(), &chunks), expected, "split at {first}, {second}");
        }
    }
}

#[test]
fn the_standard() {
    check(b"data: a\n\n", &["|a|6"]);
    check(b"data:a\n\n", &["|a|5"]);
    check(b"data:  a\n\n", &["| a|6"]);
    check(b"data\n\n", &["||4"]);
    check(b"data:\n\n", &["||5"]);
    check(b"data\ndata\n\n", &["|\n|4"]);
    check(b"data: a\ndata:b\ndata\ndata: c\n\n", &["|a\nb\n\nc|6"]);
    check(b"event: x\ndata: 1\n\ndata: 2\n\n", &["x|1|15", "|2|24"]);
    check(b"event: x\n\ndata: 2\n\n", &["|2|16"]);
    check(b"event: x\nevent: y\ndata: 2\nevent\n\n", &["|2|24"]);
    check(b"id: 7\nretry: 20\ndata: a\n\n", &["|a|22|id=7|retry=20"]);
    check(b"id: 7\0\nretry: 2x\nretry:\nretry: -1\ndata: a\n\n", &["|a|40"]);
    check(b": one\n:two\ndata: a\n: three\ndata: b\n\n", &["#one", "#two", "#three", "|a\nb|17"]);
    check(b"\n\n\n\r\r\n\r\ndata: a\n\n\n", &["|a|14"]);
    check(b"nonsense\nmore: nonsense\n data: no\nDATA: no\ndata: a\n\n", &["|a|49"]);
    check(b"", &[]);
    check(b":\n", &["#"]);
}

#[test]
fn line_ends() {
    check(b"data: a\r\ndata: b\r\n\r\n", &["|a\nb|6"]);
    check(b"data: a\rdata: b\r\rdata: c\r\r", &["|a\nb|6", "|c|23"]);
    check(b"event: x\r\ndata: a\n\r\ndata: b\r\n\n", &["x|a|16", "|b|26"]);
    check(b"data: a\n\rdata: b\n\r", &["|a|6", "|b|15"]);
}

#[test]
fn byte_order_mark() {
    check(b"\xef\xbb\xbfdata: a\n\n", &["|a|9"]);
    check(b"\xef\xbb\xbf", &[]);
    check(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", &["|b|21"]);
    check(b"data: \xef\xbb\xbfa\n\n", &["|\u{feff}a|6"]);
    check(b"d", &[]);
}

#[test]
fn characters_of_several_bytes() {
    check("event: é\ndata: 日本 😀\ndata: ü\n\n".as_bytes(), &["é|日本 😀\nü|16"]);
}

#[test]
fn not_utf8() {
    check(b"data: a\n\ndata: b\xff\n\ndata: c\n\n", &["|a|6", "!byte 16 of the body is not UTF-8"]);
    check(b"data: ok\ndata: b\xc3(\n\n", &["!byte 16 of the body is not UTF-8"]);
    check(b"data: \xc3(\ndata: b\n\n", &["!byte 6 of the body is not UTF-8"]);
    check(b"event: \xff\ndata: b\n\n", &["!byte 7 of the body is not UTF-8"]);
    check(b"id: \xff\ndata: b\n\n", &["!byte 4 of the body is not UTF-8"]);
    check(b": \xff\ndata: b\n\n", &["!byte 2 of the body is not UTF-8"]);
    check(b"other: \xff\ndata: b\n\n", &["!byte 7 of the body is not UTF-8"]);
    check(b"data: \xf0\x9f\n\n", &["!byte 6 of the body is not UTF-8"]);
}

#[test]
fn the_end_of_the_body() {
    check(b"data: a\n\ndata: b\n", &["|a|6", "|b|15|cut"]);
    check(b"data: a\n\ndata: [DONE]", &["|a|6", "|[DONE]|15|cut"]);
    check(b"data: a\ndata: b", &["|a\nb|6|cut"]);
    check(b"data: a\r", &["|a|6|cut"]);
    check(b"data: a\n\r", &["|a|6"]);
    check(b"data: a\n\ndat", &["|a|6"]);
    check(b"event: x", &[]);
    check(b": comm", &[]);
    check(b"data: a\xf0\x9f\x98", &["|a|6|cut"]);
    check(b"data: a\n\n: \xf0\x9f\x98", &["|a|6"]);
}

#[test]
fn limits() {
    let check = |body: &[u8], limit: usize, expected: &[&str]| {
        for size in [1, 2, 3, 7, body.len()] {
            let chunks: Vec<&[u8]> = body.chunks(size).collect();
            assert_eq!(decode(&mut SseDecoder::with_limit(limit), &chunks), expected, "chunks of {size}");
        }
    };
    check(b"data: 345\n\ndata: 345\n\n", 11, &["|345|6", "|345|17"]);
    check(b"data: 1\n\ndata: 345\n\n", 10, &["|1|6", "!what begins at byte 9 of the body is longer than 10 bytes"]);
    check(b"data: 12345678901234", 10, &["!what begins at byte 0 of the body is longer than 10 bytes"]);
    check(b"data:1\ndata:2\ndata:3\n\n", 15, &["!what begins at byte 0 of the body is longer than 15 bytes"]);
    // A LF behind a CR that has ended an event belongs to no other, though it comes later.
    check(
        b"data: 3\r\n\r\ndata: 12345678\r\n",
        11,
        &["|3|6", "!what begins at byte 11 of the body is longer than 11 bytes"],
    );
    check(b"data: 345\r\ndata: 4\r\n\r\n:x\r\n", 22, &["|345\n4|6", "#x"]);
    // Comments and empty lines are given back one by one.
    check(b": 4567\n: 4567\n\n\n: 4567\ndata:1\n\n", 10, &["#4567", "#4567", "#4567", "|1|28"]);
    let mut decoder = SseDecoder::with_limit(10);
    decoder.push(b"data: 12345678901234");
    let error = decoder.pull().unwrap().unwrap_err();
    assert_eq!((error.kind, error.offset), (FrameErrorKind::TooLarge { limit: 10 }, 0));
}

#[test]
fn after_an_error_nothing() {
    let mut decoder = SseDecoder::new();
    decoder.push(b"data: \xff\n\ndata: a\n\n");
    assert!(decoder.pull().unwrap().is_err());
    assert!(decoder.pull().is_none());
    decoder.push(b"data: b\n\n");
    assert!(decoder.pull().is_none());
    assert!(decoder.finish().is_none());
}

/// A generator of pseudo-random numbers: the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// A second, simple statement of the standard: split into lines first, then read them.
fn model(body: &str) -> Vec<String> {
    let body = body.strip_prefix('\u{feff}').unwrap_or(body);
    let unified = body.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = unified.split('\n').collect();
    let last = lines.pop().unwrap_or_default();
    let (mut out, mut event, mut data) = (Vec::new(), "", Vec::new());
    let mut read = |line: &'_ str, end: bool| {
        let line: &str = Box::leak(line.to_owned().into_boxed_str());
        if end || line.is_empty() {
            if !data.is_empty() {
                out.push(format!("{event}|{}|{end}", data.join("\n")));
            }
            (event, data) = ("", Vec::new());
        } else if let Some(comment) = line.strip_prefix(':') {
            out.push(format!("#{}", comment.strip_prefix(' ').unwrap_or(comment)));
        } else {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "data" => data.push(value),
                "event" => event = value,
                _ => {}
            }
        }
    };
    lines.into_iter().for_each(|line| read(line, false));
    if !last.is_empty() && !last.starts_with(':') {
        read(last, false);
    }
    read("", true);
    out
}

#[test]
fn random_bodies_at_random_splits_are_as_the_model_reads_them() {
    const PIECES: [&str; 20] = [
        "data: ",
        "data:",
        "data",
        "event: ",
        "event",
        "id: 1",
        "retry: 5",
        ": ",
        ":",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\n\r\n",
        "{\"a\":1}",
        "é",
        "😀",
        " ",
        "other: x",
        "\u{feff}",
    ];
    for seed in 0..4_000 {
        let mut dice = Dice(seed);
        let body: String = (0..dice.below(30)).map(|_| PIECES[dice.below(PIECES.len())]).collect();
        let expected = model(&body);
        for _ in 0..4 {
            let mut decoder = SseDecoder::new();
            let mut out = Vec::new();
            let mut rest = body.as_bytes();
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at(1 + dice.below(rest.len()));
                rest = tail;
                decoder.push(chunk);
                while let Some(item) = decoder.pull() {
                    out.push(match item.unwrap() {
                        SseItem::Event(event) => format!("{}|{}|false", event.event, event.data),
                        SseItem::Comment(text) => format!("#{text}"),
                    });
                }
            }
            if let Some(event) = decoder.finish() {
                let event = event.unwrap_or_else(|error| panic!("seed {seed}: {error}: {body:?}"));
                out.push(format!("{}|{}|true", event.event, event.data));
            }
            assert_eq!(out, expected, "seed {seed}: {body:?}");
        }
    }
}
