//! A WebSocket client on fastwebsockets.

use anyhow::{Context, Result, ensure};
use beamtune_peers::{MESSAGE_BYTES, Task};
use fastwebsockets::{FragmentCollector, Frame, OpCode, Payload, Role, WebSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn main() -> Result<()> {
    let task = Task::from_arguments()?;
    beamtune_peers::run(async move {
        let mut connections = Vec::with_capacity(task.connections);
        for _ in 0..task.connections {
            connections.push(open(task).await?);
        }
        let clients: Vec<_> = connections.into_iter().map(|c| tokio::spawn(exchange(c))).collect();
        for client in clients {
            client.await??;
        }
        Ok(())
    })
}

/// The crate's own handshake requires an HTTP library, which the benchmark's server does not need.
async fn open(task: Task) -> Result<FragmentCollector<TcpStream>> {
    let mut stream = TcpStream::connect(task.address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        task.address
    );
    stream.write_all(request.as_bytes()).await?;
    let mut reply = Vec::new();
    // Nothing follows the reply: the server only sends echoes.
    while !reply.ends_with(b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut reply).await? > 0, "connection closed during the handshake");
    }
    ensure!(reply.starts_with(b"HTTP/1.1 101 "), "handshake refused: {}", String::from_utf8_lossy(&reply));
    Ok(FragmentCollector::new(WebSocket::after_handshake(stream, Role::Client)))
}

async fn exchange(mut connection: FragmentCollector<TcpStream>) -> Result<()> {
    let payload = [b'x'; MESSAGE_BYTES];
    loop {
        connection.write_frame(Frame::binary(Payload::Borrowed(&payload))).await?;
        let echo = connection.read_frame().await?;
        ensure!(echo.opcode == OpCode::Binary && *echo.payload == payload, "no echo");
    }
}
