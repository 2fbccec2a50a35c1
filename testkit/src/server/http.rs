//! HTTP/1.1, as little of it as a scripted answer needs.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::refusal::{Refusal, refusal};
use super::wire::{Piece, render};
use super::{Fault, Received, Shared, Wire};
use crate::script::Answer;

/// The most that is taken of a request's head or body.
const LARGEST: u64 = 64 * 1024 * 1024;

/// An answer, before what goes wrong with it.
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Piece>,
}

impl Response {
    fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { status, headers, pieces: vec![Piece::Bytes(body.to_string().into_bytes())] }
    }
}

/// Serves one request, then closes the connection.
pub(super) async fn serve(connection: TcpStream, shared: &Shared) -> io::Result<()> {
    // Each event is to arrive by itself.
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    let Some(request) = read(&mut connection).await? else { return Ok(()) };
    let connection = connection.get_mut();
    let number = shared.take(request.clone());
    let faults = shared.faults.get(&number).map(Vec::as_slice).unwrap_or_default();
    match answer(&request, number, shared) {
        Some(response) => send(connection, response, faults, shared).await,
        None => Ok(()),
    }
}

/// The answer to a request; `None` where there is none, and the connection just closes.
fn answer(request: &Received, number: usize, shared: &Shared) -> Option<Response> {
    let refused = |what: &str| {
        shared.fault(number, what);
        let error = json!({"message": what, "type": "invalid_request_error", "status": "INVALID_ARGUMENT"});
        Some(Response::json(400, &json!({"error": error})))
    };
    let Some(wire) = request.wire else {
        return refused(&format!("{:?} belongs to no wire", request.target));
    };
    let Some(entry) = shared.entries.get(number - 1) else {
        return refused(&format!("the script has only {} entries", shared.entries.len()));
    };
    match &entry.answer {
        Answer::Fail(error) => {
            let Refusal { status, headers, body } = refusal(wire, error)?;
            let mut response = Response::json(status, &body);
            response.headers.extend(headers);
            Some(response)
        }
        Answer::Stream(items) => {
            let asked = request.body.get("model").and_then(Value::as_str).or_else(|| model(&request.target));
            match render(wire, items, number, asked.unwrap_or("scripted-model")) {
                Ok(pieces) => {
                    let headers = vec![("content-type".to_owned(), wire.content_type().to_owned())];
                    Some(Response { status: 200, headers, pieces })
                }
                Err(what) => refused(&what),
            }
        }
        Answer::EveryTool => {
            refused("a call of every tool is made from the request as the runner sees it, not over HTTP")
        }
    }
}

/// The model in the path of a request: `/v1beta/models/<model>:streamGenerateContent`.
fn model(target: &str) -> Option<&str> {
    let name = target.split_once("/models/")?.1;
    name.split([':', '?']).next()
}

/// Reads a request; `None` if the client went away, or what came is no request.
async fn read(connection: &mut BufReader<TcpStream>) -> io::Result<Option<Received>> {
    let mut head = connection.take(LARGEST);
    let mut target = None;
    let mut headers: Vec<(String, String)> = Vec::new();
    loop {
        let mut line = String::new();
        if head.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        match (&target, line.split_once(':')) {
            (None, _) => target = Some(line.split(' ').nth(1).unwrap_or_default().to_owned()),
            (Some(_), _) if line.is_empty() => break,
            (Some(_), Some((name, value))) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            (Some(_), None) => return Ok(None),
        }
    }
    let target = target.unwrap_or_default();
    let mut received = Received { wire: Wire::of(&target), target, headers, body: Value::Null };
    let length = received.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    if length > LARGEST {
        return Ok(None);
    }
    let mut body = Vec::new();
    connection.take(length).read_to_end(&mut body).await?;
    received.body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(received))
}

/// What goes wrong with a body, put together.
#[derive(Default)]
struct Wrong {
    cut: Option<usize>,
    end: Option<usize>,
    stall: Option<usize>,
    pieces: Option<usize>,
    stalls_in_headers: bool,
    zipped: bool,
}

async fn send(connection: &mut TcpStream, mut response: Response, faults: &[Fault], shared: &Shared) -> io::Result<()> {
    let mut wrong = Wrong::default();
    let labelled = |headers: &mut Vec<(String, String)>, label: &str| {
        headers.retain(|(name, _)| name != "content-type");
        headers.push(("content-type".to_owned(), label.to_owned()));
    };
    for fault in faults {
        match fault {
            Fault::CutAt(at) => wrong.cut = Some(*at),
            Fault::EndAt(at) => wrong.end = Some(*at),
            Fault::StallAt(at) => wrong.stall = Some(*at),
            Fault::Insert { before, bytes } => {
                let mut events =
                    response.pieces.iter().enumerate().filter(|(_, piece)| matches!(piece, Piece::Bytes(_)));
                let at = events.nth(*before).map_or(response.pieces.len(), |(at, _)| at);
                response.pieces.insert(at, Piece::Bytes(bytes.clone()));
            }
            Fault::ContentType(label) => labelled(&mut response.headers, label),
            Fault::Header(name, value) => response.headers.push((name.clone(), value.clone())),
            Fault::Instead { status, content_type, body } => {
                response.status = *status;
                labelled(&mut response.headers, content_type);
                response.pieces = vec![Piece::Bytes(body.clone())];
            }
            Fault::SlowHeaders(span) => sleep(*span).await,
            Fault::StallInHeaders => wrong.stalls_in_headers = true,
            Fault::Gzip => wrong.zipped = true,
            Fault::Pieces(size) => wrong.pieces = Some((*size).max(1)),
        }
    }
    if wrong.zipped {
        response.headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
        response.pieces = vec![Piece::Bytes(gzip(&super::wire::bytes(&response.pieces)))];
    }
    let mut head =
        format!("HTTP/1.1 {} scripted\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", response.status);
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if wrong.stalls_in_headers {
        connection.write_all(head.as_bytes()).await?;
        return until_it_leaves(connection).await;
    }
    head.push_str("\r\n");
    connection.write_all(head.as_bytes()).await?;
    // The first limit that is reached decides.
    let most = [wrong.cut, wrong.end, wrong.stall].into_iter().flatten().min().unwrap_or(usize::MAX);
    let mut sent = 0;
    for piece in response.pieces {
        match piece {
            Piece::Bytes(bytes) => {
                let left = bytes.get(..bytes.len().min(most - sent)).unwrap_or_default();
                for part in left.chunks(wrong.pieces.unwrap_or(usize::MAX)) {
                    chunk(connection, part).await?;
                }
                sent += left.len();
            }
            Piece::Wait(millis) => sleep(std::time::Duration::from_millis(millis)).await,
            Piece::Gate(name) => shared.gates.passed(&name).await,
            Piece::Hang => return until_it_leaves(connection).await,
            Piece::Cut => return Ok(()),
        }
        if sent == most {
            break;
        }
    }
    match () {
        () if wrong.stall == Some(sent) => until_it_leaves(connection).await,
        () if wrong.cut == Some(sent) => Ok(()),
        () => {
            connection.write_all(b"0\r\n\r\n").await?;
            connection.shutdown().await
        }
    }
}

async fn chunk(connection: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    // An empty chunk would end the body.
    if bytes.is_empty() {
        return Ok(());
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    connection.write_all(&chunk).await
}

async fn until_it_leaves(connection: &mut TcpStream) -> io::Result<()> {
    let mut nothing = [0; 64];
    while connection.read(&mut nothing).await? > 0 {}
    Ok(())
}

/// A gzip file of bytes, stored as they are: who reads it cannot tell the difference.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    const MOST: usize = 0xffff;
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = bytes.chunks(MOST).peekable();
    if blocks.peek().is_none() {
        file.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        file.push(u8::from(blocks.peek().is_none()));
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(&(!length).to_le_bytes());
        file.extend_from_slice(block);
    }
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    file.extend_from_slice(&(!crc).to_le_bytes());
    file.extend_from_slice(&u32::try_from(bytes.len() % (1 << 32)).unwrap_or(0).to_le_bytes());
    file
}
