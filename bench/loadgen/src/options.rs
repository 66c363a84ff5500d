//! The command line: `loadgen send|transactions|pull|pop|tail|receive|idle HOST:PORT TOPIC [--name value]...`

use std::collections::HashMap;

use crate::signer::Signer;

pub const USAGE: &str = "\
usage: loadgen send|transactions|pull|pop|tail|receive|idle HOST:PORT TOPIC [--name value]...
  all:   --conns 1  --secs 10  --queues 4  --seed 1  --topics 1 (TOPIC, or TOPIC-0 .. TOPIC-n)
         --wire rocketmq|grpc|kafka|nats (of Kafka's and NATS JetStream's only send and pull; nats create makes the stream;
         of gRPC send, and what follows)
  receive: --group loadgen  --batch 32  --broker broker-a (over gRPC, each batch acknowledged by one call)
  idle:  --streams 1 (telemetry streams over gRPC a connection thread, each on a connection of its own)
         --access-key KEY --secret-key KEY (sign every request)  --tls 0|1 (takes any certificate)
  send:  --depth 1 (frames in flight a connection)  --window 0|1 (1: refill one by one)
         --rate 0 (messages a second over all connections; 0: as fast as answers come)
         --size 1024  --header json|binary  --properties 3  --keys 0|1  --random 0|1
         --tags 0 (n: tags Tag0 .. Tag(n-1) in turn, and the property `part` with the number)
         --delay 0 (level)  --batched 0|1 (all that is in flight in one request)
         --timer-within 0 (timer messages, due spread over so many ms)  --timer-from (Unix ms of the first; now)
         --bname NAME (of the broker, for a proxy)
         --messages 0 (end after so many single messages, or --secs)
  transactions: as send, with the first half and the end of each
  pull:  --batch 32 (reads a queue from its start, round and round)
         --filter none|tag|sql (Tag0, or an expression that is true for the same; counts what was delivered)
  pop:   --batch 32 --broker broker-a (its name; pops the topic from its start, acknowledges one by one; JSON headers;
         --echo 1 sends, pops one and acknowledges it, one request in flight)
  tail:  --batch 32  --groups 1 (every group reads every queue from its end, by long poll)";

pub struct Options {
    pub mode: String,
    pub address: String,
    pub signer: Option<Signer>,
    topic: String,
    named: HashMap<String, String>,
}

impl Options {
    pub fn from_args() -> Result<Self, String> {
        let mut args = std::env::args().skip(1);
        let mut next = || args.next().ok_or_else(|| USAGE.to_string());
        let (mode, address, topic) = (next()?, next()?, next()?);
        let mut named = HashMap::new();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            named.insert(name.trim_start_matches("--").to_string(), value);
        }
        let signer = named.get("access-key").zip(named.get("secret-key")).map(|(key, secret)| Signer::new(key, secret));
        Ok(Self { mode, address, signer, topic, named })
    }

    pub fn number(&self, name: &str, default: u64) -> u64 {
        match self.named.get(name).map(|text| text.parse()) {
            None => default,
            Some(Ok(number)) => number,
            Some(Err(_)) => {
                eprintln!("--{name} needs a number\n{USAGE}");
                std::process::exit(2);
            }
        }
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        self.named.get(name).map_or(default, String::as_str).to_string()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.number(name, 0) != 0
    }

    pub fn binary_header(&self) -> bool {
        self.named.get("header").is_some_and(|kind| kind == "binary")
    }

    /// What pulls ask for: (kind of expression, expression).
    pub fn filter(&self) -> Option<(&'static str, &'static str)> {
        match self.named.get("filter").map(String::as_str) {
            None | Some("none") => None,
            Some("tag") => Some(("TAG", "Tag0")),
            Some("sql") => Some(("SQL92", "part BETWEEN 0 AND 0 AND UNIQ_KEY IS NOT NULL")),
            Some(_) => {
                eprintln!("{USAGE}");
                std::process::exit(2);
            }
        }
    }

    pub fn topic(&self, index: u64) -> String {
        match self.number("topics", 1) {
            1 => self.topic.clone(),
            many => format!("{}-{}", self.topic, index % many),
        }
    }
}
