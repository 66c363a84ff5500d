// The official Node.js client of gRPC, steered by lines of JSON.
// Requests and answers are those of python_peer.py.
'use strict';

const readline = require('node:readline');
const {
  ConsumeResult, FilterExpression, LitePushConsumerImpl, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');

// Of the protocol's TransactionResolution, which the package does not export.
const RESOLUTIONS = { commit: 1, rollback: 2 };
const endpoints = process.argv[2];
const logger = { info() {}, warn() {}, debug() {}, error: console.error };
const common = { endpoints, logger, requestTimeout: 10000, namespace: '' };
const producers = new Map();
const consumers = new Map();
const received = new Map();
const lights = new Map();
const sleep = ms => new Promise(done => setTimeout(done, ms));

function shown(message) {
  return {
    id: message.messageId,
    topic: message.topic,
    body: message.body.toString('base64'),
    tag: message.tag ?? null,
    keys: [...message.keys].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup || null,
    light: message.liteTopic ?? null,
    attempt: message.deliveryAttempt,
    priority: message.priority ?? null,
    at_ms: Date.now(),
    corrupted: message.corrupted ?? false,
  };
}

function made(topic, one) {
  const message = { topic, body: Buffer.from(one.body, 'base64') };
  if (one.tag) message.tag = one.tag;
  if (one.keys) message.keys = [one.keys];
  if (one.group) message.messageGroup = one.group;
  if (one.light) message.liteTopic = one.light;
  if (one.due_ms) message.deliveryTimestamp = new Date(one.due_ms);
  if (one.priority !== undefined) message.priority = one.priority;
  if (one.properties) message.properties = new Map(Object.entries(one.properties));
  return message;
}

async function producer(topic, check = null) {
  const name = JSON.stringify([ topic, check ]);
  if (!producers.has(name)) {
    const asked = [];
    const checker = {
      async check(message) {
        asked.push(message.messageId);
        return RESOLUTIONS[check];
      },
    };
    const made = new Producer({ ...common, topic, ...check && { checker } });
    await made.startup();
    producers.set(name, { made, asked });
  }
  return producers.get(name);
}

const known = {
  async send({ topic, messages }) {
    const via = (await producer(topic)).made;
    const answers = [];
    for (const one of messages) {
      try {
        const receipt = await via.send(made(topic, one));
        answers.push({ id: receipt.messageId, recall: receipt.recallHandle || null });
      } catch (error) {
        answers.push({ error: String(error) });
      }
    }
    return answers;
  },
  async recall({ topic, handle }) {
    return (await (await producer(topic)).made.recallMessage(topic, handle)).messageId;
  },
  async transaction({ topic, message, end, check }) {
    const via = (await producer(topic, check)).made;
    const transaction = via.beginTransaction();
    const receipt = await via.send(made(topic, message), transaction);
    if (end === 'commit') await transaction.commit();
    if (end === 'rollback') await transaction.rollback();
    return { id: receipt.messageId };
  },
  async checked({ topic, check }) {
    return (await producer(topic, check)).asked;
  },
  async open({ topic, group, expression = '*', wait_s = 5 }) {
    const consumer = new SimpleConsumer({
      ...common,
      consumerGroup: group,
      subscriptions: new Map([[ topic, new FilterExpression(expression) ]]),
      awaitDuration: wait_s * 1000,
    });
    await consumer.startup();
    consumers.set(group, consumer);
    return null;
  },
  async receive({ group, most, invisible_s }) {
    const found = await consumers.get(group).receive(most, invisible_s * 1000);
    for (const message of found) received.set(message.messageId, message);
    return found.map(shown);
  },
  async ack({ group, message }) {
    await consumers.get(group).ack(received.get(message));
    return null;
  },
  async change({ group, message, invisible_s }) {
    await consumers.get(group).changeInvisibleDuration(received.get(message), invisible_s * 1000);
    return null;
  },
  async close({ group }) {
    await consumers.get(group).shutdown();
    consumers.delete(group);
    return null;
  },
  async push({ topic, group, count, timeout_s, linger_s = 0, fail_once = null }) {
    const came = [];
    const consumer = new PushConsumer({
      ...common,
      consumerGroup: group,
      subscriptions: new Map([[ topic, FilterExpression.SUB_ALL ]]),
      messageListener: {
        async consume(message) {
          came.push(shown(message));
          if (fail_once !== null && message.body.toString('base64') === fail_once) {
            fail_once = null;
            return ConsumeResult.FAILURE;
          }
          return ConsumeResult.SUCCESS;
        },
      },
    });
    await consumer.startup();
    const end = Date.now() + timeout_s * 1000;
    while (came.length < count && Date.now() < end) await sleep(50);
    await sleep(linger_s * 1000);
    // It waits for polls that are under way.
    consumer.shutdown().catch(() => {});
    return came;
  },
};

Object.assign(known, {
  async light_open({ name, topic, group, lights: wanted, fail_once = null }) {
    const came = [];
    const consumer = new LitePushConsumerImpl({
      ...common,
      consumerGroup: group,
      bindTopic: topic,
      messageListener: {
        async consume(message) {
          came.push(shown(message));
          if (fail_once !== null && message.body.toString('base64') === fail_once) {
            fail_once = null;
            return ConsumeResult.FAILURE;
          }
          return ConsumeResult.SUCCESS;
        },
      },
    });
    await consumer.startup();
    lights.set(name, { consumer, came });
    for (const light of wanted) await known.light_subscribe({ name, light });
    return null;
  },
  async light_subscribe({ name, light }) {
    // Settings come by a stream of their own: before them there is no quota.
    const end = Date.now() + 20000;
    for (;;) {
      try {
        await lights.get(name).consumer.subscribeLite(light);
        return null;
      } catch (error) {
        if (Date.now() > end) throw error;
        await sleep(200);
      }
    }
  },
  async light_unsubscribe({ name, light }) {
    await lights.get(name).consumer.unsubscribeLite(light);
    return null;
  },
  async light_came({ name, count, timeout_s }) {
    const { came } = lights.get(name);
    const end = Date.now() + timeout_s * 1000;
    while (came.length < count && Date.now() < end) await sleep(50);
    return came;
  },
  async light_close({ name }) {
    const { consumer } = lights.get(name);
    lights.delete(name);
    // It waits for polls that are under way.
    consumer.shutdown().catch(() => {});
    return null;
  },
});

async function main() {
  process.stdout.write('{"ready":true}\n');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      const request = JSON.parse(line);
      answer = { result: await known[request.do](request) };
    } catch (error) {
      answer = { error: String(error && error.stack) };
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
}

main();
