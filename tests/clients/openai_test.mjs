// OpenAI's own client for JavaScript, as its users have it.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import OpenAI from 'openai';
import { Transport, key, overSocket } from './transport.mjs';

const [main, encoders, narrow] = ['MODEL', 'ENCODER', 'NARROW'].map((name) => new Transport(name));
const clientOf = ({ baseURL, fetch }, options = {}) =>
  new OpenAI({ baseURL: baseURL + '/v1', apiKey: key, fetch, maxRetries: 0, ...options });
const client = clientOf(main);
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'system', content: 'Tell stories.' }, { role: 'user', content: 'Of a little fox' }];
const chat = { model, messages, max_completion_tokens: 24, seed: 7, temperature: 0.8 };
const endless = { model, prompt: 'Once', max_tokens: 800, n: 16, stream: true, ignore_eos: true };
const cancelled = () => main.metric('troupe:request_success_total', 'finished_reason="cancelled"');
after(() => Promise.all([main, encoders, narrow].map((each) => each.close())));

test('chat: one answer, and the same with the same seed', async () => {
  const answer = await client.chat.completions.create(chat);
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.model, model);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  const again = await client.chat.completions.create(chat);
  assert.equal(again.choices[0].message.content, answer.choices[0].message.content);
  assert.ok(again.usage.prompt_tokens_details.cached_tokens >= 0);
});

test('chat: several answers, with logprobs of their tokens', async () => {
  const answer = await client.chat.completions.create({ ...chat, n: 2, logprobs: true, top_logprobs: 3 });
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
  for (const choice of answer.choices) {
    assert.equal(choice.logprobs.content.map((token) => token.token).join(''), choice.message.content);
    assert.ok(choice.logprobs.content.every((token) => token.top_logprobs.length === 3 && token.logprob <= 0));
  }
});

test('chat: a stream has the text of the whole answer, its reason and its usage', async () => {
  const whole = await client.chat.completions.create(chat);
  const stream = await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } });
  let text = '', reason, usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    reason ??= chunk.choices[0]?.finish_reason;
    usage ??= chunk.usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("chat: the client's own helper puts a stream together", async () => {
  const whole = await client.chat.completions.create(chat);
  const runner = client.chat.completions.stream({ ...chat, stream_options: { include_usage: true } });
  let text = '';
  runner.on('content', (delta) => { text += delta; });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(text, whole.choices[0].message.content);
  assert.equal((await runner.totalUsage()).completion_tokens, whole.usage.completion_tokens);
});

test('chat: reasoning is beside the answer', async () => {
  const asked = { ...chat, reasoning_effort: 'high', ignore_eos: true };
  const whole = await client.chat.completions.create(asked);
  assert.ok(whole.choices[0].message.reasoning_content.length > 0);
  assert.equal(whole.usage.completion_tokens_details.reasoning_tokens, 24);
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true }))
    text += chunk.choices[0].delta.reasoning_content ?? '';
  assert.equal(text, whole.choices[0].message.reasoning_content);
});

// The prompt that the template makes.
const rendered = async (body) => {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` };
  const answer = await main.fetch(`${main.baseURL}/apply-template`, { method: 'POST', headers, body: JSON.stringify(body) });
  assert.equal(answer.status, 200);
  return (await answer.json()).prompt;
};

test('chat: answers as completions do to the rendered text, with control tokens parsed', async () => {
  const answer = await client.chat.completions.create(chat);
  const same = await client.completions.create({ model, prompt: await rendered({ messages }), max_tokens: 24, seed: 7,
    temperature: 0.8, parse_special: true });
  assert.equal(answer.choices[0].message.content, same.choices[0].text);
  assert.equal(answer.usage.prompt_tokens, same.usage.prompt_tokens);
});

test('chat: goes on with the last message', async () => {
  const begun = [...messages, { role: 'assistant', content: 'The little fox' }];
  const prompt = await rendered({ messages: begun, continue_final_message: true });
  assert.ok(prompt.endsWith('The little fox'));
  const answer = await client.chat.completions.create({ ...chat, messages: begun, continue_final_message: true });
  const same = await client.completions.create({ model, prompt, max_tokens: 24, seed: 7, temperature: 0.8 });
  assert.equal(answer.choices[0].message.content, same.choices[0].text);
});

test('chat: reasoning ends once its tokens are used up, and the answer follows', async () => {
  const asked = { ...chat, reasoning_effort: 'high', ignore_eos: true, thinking_token_budget: 5 };
  const answer = await client.chat.completions.create(asked);
  assert.ok(answer.choices[0].message.reasoning_content.length > 0);
  assert.ok(answer.choices[0].message.content.length > 0);
  const free = await client.chat.completions.create({ ...asked, thinking_token_budget: undefined });
  assert.ok(free.choices[0].message.reasoning_content.startsWith(answer.choices[0].message.reasoning_content));
});

test('chat: a stream that is left is cancelled on the server', async () => {
  const before = await cancelled();
  const stream = await client.chat.completions.create({ ...chat, max_completion_tokens: 800, n: 16, stream: true, ignore_eos: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    stream.controller.abort();
    break;
  }
  await main.until((value) => value > before, 'troupe:request_success_total', 'finished_reason="cancelled"');
});

test('completions: whole, and as a stream of the same text', async () => {
  const asked = { model, prompt: 'Once upon a time', max_tokens: 32, seed: 3, logprobs: 2, stop: ['dragon'] };
  const whole = await client.completions.create(asked);
  assert.equal(whole.object, 'text_completion');
  assert.equal(whole.choices[0].logprobs.tokens.length, whole.usage.completion_tokens);
  let text = '';
  for await (const chunk of await client.completions.create({ ...asked, stream: true })) text += chunk.choices[0].text;
  assert.equal(text, whole.choices[0].text);
});

test('embeddings: vectors are the same as numbers and as base64, which the client asks for by itself', async () => {
  const encoder = clientOf(encoders);
  const model = (await encoder.models.list()).data[0].id;
  const input = ['a little fox', 'the rain had stopped'];
  const packed = await encoder.embeddings.create({ model, input });
  const plain = await encoder.embeddings.create({ model, input, encoding_format: 'float' });
  assert.equal(packed.data.length, 2);
  for (const [i, { embedding }] of packed.data.entries()) {
    assert.equal(embedding.length, plain.data[i].embedding.length);
    embedding.forEach((value, at) => assert.equal(value, Math.fround(plain.data[i].embedding[at])));
  }
  assert.ok(plain.usage.prompt_tokens > 0);
});

test('models: listed, found by name, and not found', async () => {
  const listed = [];
  for await (const each of client.models.list()) listed.push(each.id);
  assert.deepEqual(listed, [model]);
  assert.equal((await client.models.retrieve(model)).object, 'model');
  await assert.rejects(client.models.retrieve('other'), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'model_not_found');
    return true;
  });
});

test('responses: whole, and as events that the client puts together', async () => {
  const asked = { model, instructions: 'Tell stories.', input: 'Of a little fox', max_output_tokens: 24, store: false,
                  temperature: 0.8, seed: 7 };
  const whole = await client.responses.create(asked);
  assert.equal(whole.object, 'response');
  assert.ok(whole.output_text.length > 0);
  let text = '';
  for await (const event of await client.responses.create({ ...asked, stream: true }))
    if (event.type === 'response.output_text.delta') text += event.delta;
  assert.equal(text, whole.output_text);
  const final = await client.responses.stream(asked).finalResponse();
  assert.equal(final.output_text, whole.output_text);
  const reasoned = await client.responses.create({ ...asked, reasoning: { effort: 'high' }, ignore_eos: true });
  assert.equal(reasoned.output[0].type, 'reasoning');
  await client.responses.stream({ ...asked, reasoning: { effort: 'high' } }).finalResponse();
});

test('abort: an answer that is left, or aborted, is cancelled on the server', async () => {
  for (const leave of [(stream) => stream.controller.abort(), () => {}]) {
    const before = await cancelled();
    const stream = await client.completions.create(endless);
    for await (const chunk of stream) {
      assert.equal(chunk.object, 'text_completion');
      leave(stream);
      break;
    }
    await main.until((value) => value > before, 'troupe:request_success_total', 'finished_reason="cancelled"');
  }
});

test('abort: so is one whose head has not come yet', async () => {
  const before = await cancelled();
  const controller = new AbortController();
  const asked = client.completions.create({ ...endless, stream: false }, { signal: controller.signal });
  await main.until((value) => value > 0, 'troupe:num_requests_running');
  controller.abort();
  await assert.rejects(asked, OpenAI.APIUserAbortError);
  await main.until((value) => value > before, 'troupe:request_success_total', 'finished_reason="cancelled"');
});

test('errors have the class, the parameter and the code that the client knows', async () => {
  const refused = [
    [() => client.chat.completions.create({ ...chat, temperature: -1 }), OpenAI.BadRequestError, 'temperature'],
    [() => client.chat.completions.create({ ...chat, temprature: 1 }), OpenAI.BadRequestError, 'temprature'],
    [() => client.chat.completions.create({ ...chat, tools: [{ type: 'function', function: { name: 'a b' } }] }),
      OpenAI.BadRequestError, 'tools'],
    [() => client.chat.completions.create({ ...chat, stream: true, model: 'other' }), OpenAI.NotFoundError, 'model'],
    [() => client.responses.create({ model, input: 'x', previous_response_id: 'resp_1' }), OpenAI.BadRequestError,
      'previous_response_id'],
    [() => client.completions.create({ model, prompt: 'x '.repeat(4000) }), OpenAI.BadRequestError, undefined],
  ];
  for (const [ask, type, parameter] of refused)
    await assert.rejects(ask, (error) => {
      assert.ok(error instanceof type, `${error}`);
      if (parameter) assert.equal(error.param, parameter);
      assert.ok(error.message.length > 10 && error.code && error.type, `${error}`);
      return true;
    });
});

test('errors: a wrong key, and none', { skip: overSocket && 'keys mean nothing on the Unix socket' }, async () => {
  for (const options of [{ apiKey: 'trp_wrong' }, { defaultHeaders: { Authorization: null } }])
    await assert.rejects(clientOf(main, options).models.list(), (error) => {
      assert.ok(error instanceof OpenAI.AuthenticationError);
      assert.equal(error.code, 'invalid_api_key');
      return true;
    });
});

test('a request beyond all that a user may have waits in line, and is answered once there is room', async () => {
  // Its answers are not read, so they wait for the client, and take all the requests that a user may have.
  narrow.record = false;
  const held = await clientOf(narrow).completions.create({ ...endless, n: 56 });
  narrow.record = true;
  const asked = clientOf(narrow, { maxRetries: 0 }).completions.create({ model, prompt: 'x', max_tokens: 4 });
  assert.equal(await Promise.race([asked, narrow.metric('troupe:num_requests_parked').then(() => 'waits')]), 'waits');
  held.controller.abort();
  assert.equal((await asked).choices[0].finish_reason, 'length');
});

test('429: the client tries again by itself, and is answered once there is room', async () => {
  // With so many answers that wait for their client a user gets no other.
  narrow.record = false;
  const held = await clientOf(narrow).completions.create({ ...endless, n: 48 });
  await narrow.until((value) => value >= 48, 'troupe:num_requests_parked');
  narrow.record = true;
  await assert.rejects(clientOf(narrow).completions.create({ model, prompt: 'x' }), OpenAI.RateLimitError);
  const asked = clientOf(narrow, { maxRetries: 50 }).completions.create({ model, prompt: 'x', max_tokens: 4 });
  while (narrow.statuses.filter((status) => status === 429).length < 2) await new Promise(setImmediate);
  held.controller.abort();
  assert.equal((await asked).choices[0].finish_reason, 'length');
});
