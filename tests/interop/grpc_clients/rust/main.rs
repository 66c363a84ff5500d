//! The official Rust client of gRPC, steered by lines of JSON.
//!
//! Each line of standard input is a request, each line of standard output its answer. The requests
//! are those of `python_peer.py` that this client has: it has no push consumer, recalls nothing and
//! changes no invisible time. The client writes its log to standard error.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_STANDARD};
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Answer = Result<Value, String>;

const REQUEST_LIMIT: Duration = Duration::from_secs(10);

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

struct Peer {
    endpoint: String,
    producers: HashMap<String, Producer>,
    transactional: HashMap<String, (Producer, Arc<Mutex<Vec<String>>>)>,
    consumers: HashMap<String, Consumer>,
    received: HashMap<String, MessageView>,
}

fn text<'a>(fields: &'a Value, name: &str) -> Result<&'a str, String> {
    fields[name]
        .as_str()
        .ok_or_else(|| format!("{name} is no text: {fields}"))
}

fn number(fields: &Value, name: &str, default: u64) -> u64 {
    fields[name].as_u64().unwrap_or(default)
}

/// Return what a client's error says, with the code and the text that the server gave.
fn said(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Return a builder with what a request's message has; its kind follows from that.
fn made(topic: &str, one: &Value) -> Result<MessageBuilder, String> {
    let body = BASE64_STANDARD.decode(text(one, "body")?).map_err(said)?;
    let mut builder = MessageBuilder::builder().set_topic(topic).set_body(body);
    if let Some(tag) = one["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(key) = one["keys"].as_str() {
        builder = builder.set_keys(vec![key]);
    }
    if let Some(group) = one["group"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(due_ms) = one["due_ms"].as_i64() {
        // This client counts in seconds.
        builder = builder.set_delivery_timestamp(due_ms / 1000);
    }
    if let Some(properties) = one["properties"].as_object() {
        let pairs = properties
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
        builder = builder.set_properties(pairs.collect::<HashMap<_, _>>());
    }
    Ok(builder)
}

fn shown(view: &MessageView) -> Value {
    let mut keys = view.keys().to_vec();
    keys.sort();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    json!({
        "id": view.message_id(),
        "topic": view.topic(),
        "body": BASE64_STANDARD.encode(view.body()),
        "tag": view.tag(),
        "keys": keys,
        "properties": view.properties(),
        "group": view.message_group(),
        "attempt": view.delivery_attempt(),
        "at_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        "corrupted": false,
    })
}

impl Peer {
    fn options(&self) -> ClientOption {
        let mut options = ClientOption::default();
        options.set_access_url(self.endpoint.clone());
        options.set_enable_tls(false);
        options.set_timeout(REQUEST_LIMIT);
        let keys = ["PEER_ACCESS_KEY", "PEER_SECRET_KEY"].map(std::env::var);
        if let [Ok(access), Ok(secret)] = keys {
            options.set_access_key(access);
            options.set_secret_key(secret);
        }
        options
    }

    async fn send(&mut self, fields: &Value) -> Answer {
        let topic = text(fields, "topic")?.to_owned();
        if !self.producers.contains_key(&topic) {
            let mut options = ProducerOption::default();
            options.set_topics(vec![topic.clone()]);
            let mut producer = Producer::new(options, self.options()).map_err(said)?;
            producer.start().await.map_err(said)?;
            self.producers.insert(topic.clone(), producer);
        }
        let producer = &self.producers[&topic];
        let mut answers = Vec::new();
        for one in fields["messages"].as_array().into_iter().flatten() {
            let message = made(&topic, one)?.build().map_err(said)?;
            answers.push(match producer.send(message).await {
                Ok(receipt) => json!({"id": receipt.message_id()}),
                Err(error) => json!({"error": said(error)}),
            });
        }
        Ok(Value::Array(answers))
    }

    /// Send a half message and end it (commit, rollback, none); `check` answers checks.
    async fn transaction(&mut self, fields: &Value) -> Answer {
        let (topic, check) = (text(fields, "topic")?, text(fields, "check")?);
        let name = format!("{topic}/{check}");
        if !self.transactional.contains_key(&name) {
            let made = self
                .transactional_producer(topic, check == "commit")
                .await?;
            self.transactional.insert(name.clone(), made);
        }
        let builder = made(topic, &fields["message"])?.enable_transaction();
        let message = builder.build().map_err(said)?;
        let producer = &self.transactional[&name].0;
        let half = producer
            .send_transaction_message(message)
            .await
            .map_err(said)?;
        let id = half.message_id().to_owned();
        match text(fields, "end")? {
            "commit" => half.commit().await.map_err(said)?,
            "rollback" => half.rollback().await.map_err(said)?,
            _ => {}
        }
        Ok(json!({"id": id}))
    }

    async fn transactional_producer(
        &self,
        topic: &str,
        commits: bool,
    ) -> Result<(Producer, Arc<Mutex<Vec<String>>>), String> {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let check = move |_: String, view: MessageView| {
            noted.lock().unwrap().push(view.message_id().to_owned());
            if commits {
                TransactionResolution::COMMIT
            } else {
                TransactionResolution::ROLLBACK
            }
        };
        let mut options = ProducerOption::default();
        options.set_topics(vec![topic]);
        let mut producer =
            Producer::new_transaction_producer(options, self.options(), Box::new(check))
                .map_err(said)?;
        producer.start().await.map_err(said)?;
        Ok((producer, asked))
    }

    /// Return the ids of half messages that the broker asked about.
    fn checked(&self, fields: &Value) -> Answer {
        let name = format!("{}/{}", text(fields, "topic")?, text(fields, "check")?);
        let asked = self
            .transactional
            .get(&name)
            .ok_or("there is no such producer")?;
        Ok(json!(*asked.1.lock().unwrap()))
    }

    async fn open(&mut self, fields: &Value) -> Answer {
        let (topic, group) = (text(fields, "topic")?, text(fields, "group")?);
        let kind = match fields["kind"].as_str() {
            Some("SQL92") => FilterType::Sql,
            _ => FilterType::Tag,
        };
        let filter = FilterExpression::new(kind, fields["expression"].as_str().unwrap_or("*"));
        let mut options = SimpleConsumerOption::default();
        options.set_consumer_group(group);
        options.set_topics(vec![topic]);
        let mut client_options = self.options();
        // A proxy refuses a call that has less than five seconds left.
        let wait_s = 1 + number(fields, "wait_s", 5);
        client_options.set_long_polling_timeout(Duration::from_secs(wait_s));
        let mut client = SimpleConsumer::new(options, client_options).map_err(said)?;
        client.start().await.map_err(said)?;
        let consumer = Consumer {
            client,
            topic: topic.to_owned(),
            filter,
        };
        self.consumers.insert(group.to_owned(), consumer);
        Ok(Value::Null)
    }

    fn consumer(&self, fields: &Value) -> Result<&Consumer, String> {
        let group = text(fields, "group")?;
        self.consumers
            .get(group)
            .ok_or_else(|| format!("{group} has no consumer"))
    }

    /// Receive once; messages are named by their id until they are settled.
    async fn receive(&mut self, fields: &Value) -> Answer {
        let consumer = self.consumer(fields)?;
        let most = i32::try_from(number(fields, "most", 16)).map_err(said)?;
        let invisible = Duration::from_secs(number(fields, "invisible_s", 10));
        let (client, filter) = (&consumer.client, &consumer.filter);
        let came = client
            .receive_with(&consumer.topic, filter, most, invisible)
            .await
            .map_err(said);
        // The time to wait is the call's deadline as well: either may be over first.
        let views = match came {
            Err(text) if text.contains("Timeout expired") => Vec::new(),
            other => other?,
        };
        let found = views.iter().map(shown).collect();
        let named = views
            .into_iter()
            .map(|view| (view.message_id().to_owned(), view));
        self.received.extend(named);
        Ok(Value::Array(found))
    }

    /// Acknowledge a message by its last receipt handle.
    async fn ack(&mut self, fields: &Value) -> Answer {
        let id = text(fields, "message")?;
        let view = self
            .received
            .get(id)
            .ok_or_else(|| format!("{id} was not received"))?;
        self.consumer(fields)?
            .client
            .ack(view)
            .await
            .map_err(said)?;
        Ok(Value::Null)
    }

    async fn close(&mut self, fields: &Value) -> Answer {
        let group = text(fields, "group")?;
        let found = self.consumers.remove(group);
        let consumer = found.ok_or_else(|| format!("{group} has no consumer"))?;
        consumer.client.shutdown().await.map_err(said)?;
        Ok(Value::Null)
    }

    async fn answer(&mut self, line: &str) -> Answer {
        let fields: Value = serde_json::from_str(line).map_err(said)?;
        match text(&fields, "do")? {
            "send" => self.send(&fields).await,
            "transaction" => self.transaction(&fields).await,
            "checked" => self.checked(&fields),
            "open" => self.open(&fields).await,
            "receive" => self.receive(&fields).await,
            "ack" => self.ack(&fields).await,
            "close" => self.close(&fields).await,
            other => Err(format!("this client cannot {other}")),
        }
    }
}

fn main() {
    let mut peer = Peer {
        endpoint: std::env::args()
            .nth(1)
            .expect("the endpoint is the one argument"),
        producers: HashMap::new(),
        transactional: HashMap::new(),
        consumers: HashMap::new(),
        received: HashMap::new(),
    };
    // Heartbeats and checks of half messages go on while this thread waits for the next line.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut answers = std::io::stdout();
    let mut say = |answer: &Value| {
        writeln!(answers, "{answer}")
            .and_then(|()| answers.flush())
            .expect("somebody listens");
    };
    say(&json!({"ready": true}));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("lines of text");
        say(&match runtime.block_on(peer.answer(&line)) {
            Ok(result) => json!({"result": result}),
            Err(error) => json!({"error": error}),
        });
    }
}
