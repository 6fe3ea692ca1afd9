// Anthropic's own client for JavaScript, as its users have it.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { Transport, key, overSocket } from './transport.mjs';

const main = new Transport('MODEL');
const clientOf = (options = {}) =>
  new Anthropic({ baseURL: main.baseURL, apiKey: key, fetch: main.fetch, maxRetries: 0, ...options });
const client = clientOf();
const asked = { model: '', max_tokens: 24, system: 'Tell stories.', temperature: 0.8, seed: 7,
                messages: [{ role: 'user', content: 'Of a little fox' }] };
after(() => main.close());

test('messages: one answer', async () => {
  const message = await client.messages.create(asked);
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.equal(message.content[0].type, 'text');
  assert.ok(message.content[0].text.length > 0);
  assert.ok(['end_turn', 'max_tokens'].includes(message.stop_reason));
  assert.ok(message.usage.output_tokens > 0);
});

test('messages: a stream of events is the same answer', async () => {
  const whole = await client.messages.create(asked);
  let text = '';
  const types = [];
  for await (const event of await client.messages.create({ ...asked, stream: true })) {
    if (event.type === 'content_block_delta') text += event.delta.text;
    if (types.at(-1) !== event.type) types.push(event.type);
  }
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(types, ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop',
                           'message_delta', 'message_stop']);
});

test("messages: the client's own helper puts a stream together", async () => {
  const whole = await client.messages.create(asked);
  const stream = client.messages.stream(asked);
  let text = '';
  stream.on('text', (delta) => { text += delta; });
  const final = await stream.finalMessage();
  assert.equal(await stream.finalText(), whole.content[0].text);
  assert.equal(text, whole.content[0].text);
  assert.equal(final.stop_reason, whole.stop_reason);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test('messages: thinking comes as a block before the answer', async () => {
  const thinking = { type: 'enabled', budget_tokens: 20 };
  const final = await client.messages.stream({ ...asked, thinking, ignore_eos: true }).finalMessage();
  assert.equal(final.content[0].type, 'thinking');
  assert.ok(final.content[0].thinking.length > 0);
});

test('count_tokens counts what a message is computed from', async () => {
  const { model, system, messages } = asked;
  const counted = await client.messages.countTokens({ model, system, messages });
  const { usage } = await client.messages.create(asked);
  assert.equal(counted.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
});

test('models are listed', async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.equal(models.length, 1);
});

test('abort: an answer that is aborted is cancelled on the server', async () => {
  const name = ['troupe:request_success_total', 'finished_reason="cancelled"'];
  const before = await main.metric(...name);
  const stream = client.messages.stream({ ...asked, max_tokens: 900, ignore_eos: true });
  stream.on('text', () => stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  await main.until((value) => value > before, ...name);
});

test('errors have the class and the shape that the client knows', async () => {
  for (const [fields, type] of [[{ temperature: -1 }, Anthropic.BadRequestError], [{ tops_p: 1 }, Anthropic.BadRequestError],
                                [{ model: 'other' }, Anthropic.NotFoundError]])
    for (const stream of [false, true])
      await assert.rejects(client.messages.create({ ...asked, ...fields, stream }), (error) => {
        assert.ok(error instanceof type, `${error}`);
        assert.equal(error.error.type, 'error');
        assert.ok(error.error.error.message.length > 10);
        assert.ok('request_id' in error.error);
        return true;
      });
});

test('errors: a wrong key', { skip: overSocket && 'keys mean nothing on the Unix socket' }, async () => {
  await assert.rejects(clientOf({ apiKey: 'trp_wrong' }).messages.create(asked), Anthropic.AuthenticationError);
});
