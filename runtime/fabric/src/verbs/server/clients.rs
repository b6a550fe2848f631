//! The departure of clients: see [`admission`](crate::admission).

use super::{Server, ServerConnection};
use crate::Departure;
use crate::lanes::wire::Outcome;
use crate::question::{Answer, Question};
use crate::verbs::queue::RECEIVED;
use farfield_words::Address;
use farfield_words::WORD_BYTES;

impl Server {
    /// Closes all connections of a client: no operation of it takes effect in this node's memory any more.
    pub(super) fn disconnect_client(&mut self, client: u32, departure: Departure) {
        let Some(process) = self.admission.remove(client, &self.status.clients) else { return };
        self.connections.retain(|_, connection| {
            let goes = match connection {
                ServerConnection::Lane { client: of, .. } | ServerConnection::Control { client: of, .. } => {
                    *of == client
                }
                ServerConnection::Unauthenticated { .. } => false,
            };
            if goes {
                connection.id().disconnect();
            }
            !goes
        });
        self.mark(process, departure);
    }

    /// Marks a client's record, if this is the first memory node.
    fn mark(&self, process: u32, departure: Departure) {
        let word = |at: Address| self.regions.first()?.words().get(at.offset() as usize / WORD_BYTES);
        self.admission.mark(process, departure, &word);
    }

    /// Answers clients' questions about other clients, which disconnects those.
    pub(super) fn answer_clients(&mut self) {
        let mut asked = Vec::new();
        for (number, connection) in &self.connections {
            if let ServerConnection::Control { completions, messages, .. } = connection {
                completions.rearm();
                completions.take(|completion| {
                    if completion.outcome == Outcome::Done && completion.number == RECEIVED {
                        asked.push((*number, messages.received(completion.bytes)));
                    }
                });
            }
        }
        for (number, bytes) in asked {
            let Some(question) = bytes.first_chunk().copied().map(Question::from_bytes) else {
                self.remove(number);
                continue;
            };
            let process = question.of;
            if let Some((client, _)) = self.admission.client_of(process) {
                tracing::info!(process, "client disconnected: another has found its lease expired");
                self.disconnect_client(client, Departure::FromCluster);
            }
            self.mark(process, Departure::FromCluster);
            let Some(ServerConnection::Control { queue_pair, messages, .. }) = self.connections.get(&number)
            else {
                continue;
            };
            let answer = question.answered(Answer::Gone);
            let answered = messages.expect(queue_pair).and_then(|()| messages.send(queue_pair, &answer));
            if answered.is_err() {
                self.remove(number);
            }
        }
    }
}
