//! A WebSocket client on tokio-tungstenite.

use anyhow::{Context, Result, bail};
use beamtune_peers::{MESSAGE_BYTES, Task};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};

fn main() -> Result<()> {
    let task = Task::from_arguments()?;
    // By default each connection zeroes a buffer of 128 kB per read, which small messages hardly use.
    let config = WebSocketConfig::default().read_buffer_size(4096);
    beamtune_peers::run(async move {
        let mut connections = Vec::with_capacity(task.connections);
        for _ in 0..task.connections {
            let stream = TcpStream::connect(task.address).await.context("cannot connect")?;
            stream.set_nodelay(true)?;
            let url = format!("ws://{}/", task.address);
            let (connection, _) = tokio_tungstenite::client_async_with_config(url, stream, Some(config))
                .await
                .context("handshake failed")?;
            connections.push(connection);
        }
        let clients: Vec<_> = connections.into_iter().map(|c| tokio::spawn(exchange(c))).collect();
        for client in clients {
            client.await??;
        }
        Ok(())
    })
}

async fn exchange(mut connection: WebSocketStream<TcpStream>) -> Result<()> {
    let payload = Bytes::from_static(&[b'x'; MESSAGE_BYTES]);
    loop {
        connection.send(Message::Binary(payload.clone())).await?;
        match connection.next().await.context("closed")?? {
            Message::Binary(echo) if echo == payload => {}
            other => bail!("no echo, but {other:?}"),
        }
    }
}
