// Cases of kafkajs. A line for each: "PASS name" or "FAIL name: why".
//
// Usage: node cases.js BOOTSTRAP PREFIX; PREFIX starts the name of every topic.
//
// kafkajs has no consumer without a group. Its read path (request, decoding of
// batches, decompression) is driven through its own broker object instead.
'use strict'

const assert = require('assert')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const consoleLogger = require('kafkajs/src/loggers/console')
const socketFactory = require('kafkajs/src/network/socketFactory')

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const [bootstrap, prefix] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'js', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8, initialRetryTime: 50, maxRetryTime: 400 } })

const cases = {}

async function withAdmin(f) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await f(admin)
  } finally {
    await admin.disconnect()
  }
}

async function withProducer(options, f) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await f(producer)
  } finally {
    await producer.disconnect()
  }
}

async function createTopic(name, numPartitions = 1, configEntries = []) {
  const topic = `${prefix}.${name}`
  await withAdmin(admin => admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] }))
  return topic
}

// Every record of a partition from an offset to its end.
async function readAll(topic, partition = 0, offset = 0, isolationLevel = 0) {
  const logger = createLogger({ level: logLevel.NOTHING, logCreator: consoleLogger })
  const cluster = new Cluster({ logger, socketFactory: socketFactory(), brokers: [bootstrap], clientId: 'js', connectionTimeout: 5000, enforceRequestTimeout: true, metadataMaxAge: 300000, allowAutoTopicCreation: false, maxInFlightRequests: null, retry: {} })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const meta = cluster.findTopicPartitionMetadata(topic)
    const broker = await cluster.findBroker({ nodeId: String(meta.find(p => p.partitionId === partition).leader) })
    const out = []
    for (;;) {
      const { responses } = await broker.fetch({ isolationLevel, maxWaitTime: 200, minBytes: 1, maxBytes: 1 << 20, topics: [{ topic, partitions: [{ partition, fetchOffset: offset, maxBytes: 1 << 20 }] }] })
      const messages = responses[0].partitions[0].messages.filter(m => Number(m.offset) >= offset)
      if (messages.length === 0) return out
      out.push(...messages.filter(m => !m.isControlRecord))
      offset = Number(messages[messages.length - 1].offset) + 1
    }
  } finally {
    await cluster.disconnect()
  }
}

const text = b => (b === null || b === undefined ? null : b.toString())

cases['send-and-read'] = async () => {
  const topic = await createTopic('send')
  await withProducer({}, async producer => {
    for (let i = 0; i < 3; i++) {
      const [sent] = await producer.send({ topic, acks: -1, messages: [{ partition: 0, timestamp: String(1000 + i), key: `k${i}`, value: `v${i}`, headers: { h: `x${i}`, e: '' } }] })
      assert.strictEqual(sent.errorCode, 0)
      assert.strictEqual(sent.baseOffset, String(i))
      assert.strictEqual(sent.partition, 0)
    }
  })
  const got = await readAll(topic)
  assert.deepStrictEqual(got.map(m => [m.offset, m.timestamp, text(m.key), text(m.value), text(m.headers.h), text(m.headers.e)]),
    [['0', '1000', 'k0', 'v0', 'x0', ''], ['1', '1001', 'k1', 'v1', 'x1', ''], ['2', '1002', 'k2', 'v2', 'x2', '']])
}

cases['null-and-empty'] = async () => {
  const topic = await createTopic('null')
  const pairs = [[null, null], ['', ''], [null, ''], ['', null]]
  await withProducer({}, producer => producer.send({ topic, messages: pairs.map(([key, value]) => ({ partition: 0, key, value })) }))
  assert.deepStrictEqual((await readAll(topic)).map(m => [text(m.key), text(m.value)]), pairs)
}

cases['gzip'] = async () => {
  const topic = await createTopic('gzip')
  const messages = []
  for (let i = 0; i < 500; i++) messages.push({ partition: 0, key: `k${i}`, value: `value ${i} `.repeat(10) })
  await withProducer({}, producer => producer.send({ topic, compression: CompressionTypes.GZIP, messages }))
  const got = await readAll(topic)
  assert.deepStrictEqual(got.map(m => text(m.value)), messages.map(m => m.value))
}

cases['idempotent'] = async () => {
  const topic = await createTopic('idempotent')
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async producer => {
    for (let i = 0; i < 5; i++) {
      const [sent] = await producer.send({ topic, acks: -1, messages: [{ partition: 0, value: `v${i}` }] })
      assert.strictEqual(sent.baseOffset, String(i))
    }
  })
  assert.deepStrictEqual((await readAll(topic)).map(m => text(m.value)), ['v0', 'v1', 'v2', 'v3', 'v4'])
}

for (const acks of [0, 1, -1]) {
  cases[`acks-${acks}`] = async () => {
    const topic = await createTopic(`acks${acks}`)
    await withProducer({}, producer => producer.send({ topic, acks, messages: [{ partition: 0, value: 'a' }, { partition: 0, value: 'b' }] }))
    let got = []
    for (let i = 0; i < 100 && got.length < 2; i++) got = await readAll(topic)
    assert.deepStrictEqual(got.map(m => text(m.value)), ['a', 'b'])
  }
}

cases['offsets'] = async () => {
  const topic = await createTopic('offsets', 2)
  await withProducer({}, producer => producer.send({ topic, messages: [1, 2, 3].map(i => ({ partition: 1, timestamp: String(100 * i), value: `v${i}` })) }))
  await withAdmin(async admin => {
    const byPartition = list => list.map(o => [o.partition, o.offset]).sort()
    assert.deepStrictEqual((await admin.fetchTopicOffsets(topic)).map(o => [o.partition, o.low, o.high]).sort(), [[0, '0', '0'], [1, '0', '3']])
    assert.deepStrictEqual(byPartition(await admin.fetchTopicOffsetsByTimestamp(topic, 150)), [[0, '0'], [1, '1']])
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '2' }] })
    assert.deepStrictEqual((await admin.fetchTopicOffsets(topic)).map(o => [o.partition, o.low, o.high]).sort(), [[0, '0', '0'], [1, '2', '3']])
  })
  assert.deepStrictEqual((await readAll(topic, 1, 2)).map(m => text(m.value)), ['v3'])
}

cases['admin'] = async () => {
  const topic = await createTopic('admin', 2, [{ name: 'retention.ms', value: '5555' }])
  await withAdmin(async admin => {
    assert.strictEqual(await admin.createTopics({ topics: [{ topic }] }), false, 'a topic that exists is not created again')
    const cluster = await admin.describeCluster()
    assert.strictEqual(cluster.controller, 1)
    assert.deepStrictEqual(cluster.brokers, [{ nodeId: 1, host: bootstrap.split(':')[0], port: Number(bootstrap.split(':')[1]) }])
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.deepStrictEqual(topics[0].partitions.map(p => [p.partitionId, p.leader, p.isr]).sort(), [[0, 1, [1]], [1, 1, [1]]])
    assert.ok((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const described = await admin.describeConfigs({ includeSynonyms: true, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
    const retention = described.resources[0].configEntries.find(c => c.configName === 'retention.ms')
    assert.strictEqual(retention.configValue, '5555')
    await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'segment.ms', value: '6666' }] }] })
    await admin.deleteTopics({ topics: [topic] })
    await assert.rejects(admin.deleteTopics({ topics: [`${topic}.no`] }), e => e.type === 'UNKNOWN_TOPIC_OR_PARTITION' || /does not host/.test(e.message))
  })
}

async function main() {
  let failed = false
  for (const [name, run] of Object.entries(cases)) {
    try {
      const began = Date.now()
      await run()
      console.log(`PASS ${name} (${Date.now() - began} ms)`)
    } catch (e) {
      failed = true
      console.log(`FAIL ${name}: ${String(e).replace(/\n/g, ' ')}`)
      console.log(e.stack)
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
