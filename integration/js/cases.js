// Cases of kafkajs. A line for each: "PASS name" or "FAIL name: why".
//
// Usage: node cases.js BOOTSTRAP PREFIX [groups]; PREFIX starts the name of every topic. Cases "group-..." run when
// they are asked for, and then alone.
//
// kafkajs has no consumer without a group. In the other cases its read path (request, decoding of batches,
// decompression) is driven through its own broker object instead.
'use strict'

const assert = require('assert')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const consoleLogger = require('kafkajs/src/loggers/console')
const socketFactory = require('kafkajs/src/network/socketFactory')

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const [bootstrap, prefix, groups] = process.argv.slice(2)
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

// A member of a group that remembers what it was given and what it read.
async function member(groupId, topic, options = {}, run = {}) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 200, rebalanceTimeout: 10000, maxWaitTimeInMs: 100, ...options })
  const m = { consumer, owned: [], values: [], joins: 0 }
  consumer.on(consumer.events.GROUP_JOIN, e => { m.joins++; m.owned = (e.payload.memberAssignment[topic] || []).slice().sort(); m.protocol = e.payload.groupProtocol })
  consumer.on(consumer.events.REBALANCING, () => { m.owned = [] })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => { m.values.push(`${partition}/${message.offset} ${text(message.value)}`) }, ...run })
  return m
}

async function until(what, ok) {
  const deadline = Date.now() + 40000
  for (;;) {
    if (await ok()) return
    if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

// One more record in each partition, read once by one of the members.
async function flows(topic, partitions, n, ...members) {
  for (const m of members) m.values.length = 0
  const want = []
  for (let p = 0; p < partitions; p++) want.push(`${p}/${n} v${n}`)
  await withProducer({}, producer => producer.send({ topic, messages: want.map((_, partition) => ({ partition, value: `v${n}` })) }))
  await until(`${partitions} records are read`, () => members.flatMap(m => m.values).length >= partitions)
  assert.deepStrictEqual(members.flatMap(m => m.values).sort(), want)
}

const committedOffsets = (admin, groupId, topic) => admin.fetchOffsets({ groupId, topics: [topic] })
  .then(list => list[0].partitions.map(p => [p.partition, p.offset]).sort())

cases['group-members'] = async () => {
  const topic = await createTopic('group-members', 4)
  const groupId = `${topic}.g`
  const sizes = (...members) => members.map(m => m.owned.length).sort().join()
  const one = await member(groupId, topic)
  await until('one has all', () => sizes(one) === '4')
  assert.strictEqual(one.protocol, 'RoundRobinAssigner')
  await flows(topic, 4, 0, one)
  const two = await member(groupId, topic)
  await until('two share', () => sizes(one, two) === '2,2')
  assert.deepStrictEqual([...one.owned, ...two.owned].sort(), [0, 1, 2, 3])
  await flows(topic, 4, 1, one, two)
  await one.consumer.disconnect()
  await until('one is left', () => sizes(two) === '4')
  await flows(topic, 4, 2, two)
  await two.consumer.disconnect()
  await withAdmin(async admin => {
    assert.deepStrictEqual(await committedOffsets(admin, groupId, topic), [0, 1, 2, 3].map(p => [p, '3']))
    const { groups } = await admin.describeGroups([groupId])
    assert.deepStrictEqual([groups[0].state, groups[0].members.length, groups[0].errorCode], ['Empty', 0, 0])
  })
}

cases['group-commits'] = async () => {
  const topic = await createTopic('group-commits')
  const groupId = `${topic}.g`
  await withProducer({}, producer => producer.send({ topic, messages: [0, 1, 2, 3, 4].map(i => ({ partition: 0, value: `v${i}` })) }))
  const one = await member(groupId, topic, {}, { autoCommit: false })
  await until('five are read', () => one.values.length === 5)
  await one.consumer.commitOffsets([{ topic, partition: 0, offset: '2', metadata: 'noted' }])
  await withAdmin(async admin => {
    const [got] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.deepStrictEqual(got.partitions, [{ partition: 0, offset: '2', metadata: 'noted' }])
    const { groups } = await admin.describeGroups([groupId])
    assert.deepStrictEqual([groups[0].state, groups[0].protocol, groups[0].members.length, groups[0].members[0].clientId], ['Stable', 'RoundRobinAssigner', 1, 'js'])
    await assert.rejects(admin.deleteGroups([groupId]), e => e.groups[0].error.type === 'NON_EMPTY_GROUP')
  })
  await one.consumer.disconnect()
  const two = await member(groupId, topic)
  await until('three are read', () => two.values.length === 3)
  assert.deepStrictEqual(two.values, ['0/2 v2', '0/3 v3', '0/4 v4'])
  two.consumer.seek({ topic, partition: 0, offset: '4' })
  await until('one is read again', () => two.values.length === 4)
  assert.strictEqual(two.values[3], '0/4 v4')
  await two.consumer.disconnect()
  await withAdmin(async admin => {
    assert.deepStrictEqual(await committedOffsets(admin, groupId, topic), [[0, '5']])
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '1' }] })
    assert.deepStrictEqual(await committedOffsets(admin, groupId, topic), [[0, '1']])
    await admin.resetOffsets({ groupId, topic, earliest: true })
    assert.ok((await admin.listGroups()).groups.some(g => g.groupId === groupId))
    await admin.deleteGroups([groupId])
    await assert.rejects(admin.deleteGroups([groupId]), e => e.groups[0].error.type === 'GROUP_ID_NOT_FOUND')
  })
}

async function main() {
  let failed = false
  for (const [name, run] of Object.entries(cases)) {
    if (name.startsWith('group-') !== (groups === 'groups')) continue
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
