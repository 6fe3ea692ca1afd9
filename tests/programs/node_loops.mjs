// Tool loops of libraries for node: each asks, runs the call of the answer, sends what it gave, and has the answer to that.
// node_loops_test.py runs it with the server's URL and what its model answers (loops.py) in LOOPS.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const { url, found, note, place, seen } = JSON.parse(process.env.LOOPS);
const baseURL = url + '/v1', apiKey = 'none';
const task = 'Which animal is at the lake?', user = { role: 'user', content: task };
const look = {
  name: 'look', description: 'Looks at a place.',
  parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] },
};
const lookTool = { type: 'function', function: look };

// What the tool of a call gives; the call must be the scripted one.
function run(name, input) {
  assert.equal(name, 'look');
  assert.deepEqual(input, { place });
  return seen;
}

// --- openai ---

const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

test('openai: a loop of chat completions', async () => {
  const messages = [user];
  const first = await openai.chat.completions.create({ model: 'toy', messages, tools: [lookTool] });
  assert.equal(first.choices[0].finish_reason, 'tool_calls');
  const { message } = first.choices[0];
  const [call] = message.tool_calls;
  messages.push(message, {
    role: 'tool', tool_call_id: call.id, content: run(call.function.name, JSON.parse(call.function.arguments)),
  });
  const last = await openai.chat.completions.create({ model: 'toy', messages, tools: [lookTool] });
  assert.equal(last.choices[0].message.content, found);
});

test('openai: its own runner of tools, which streams', async () => {
  const places = [];
  const runner = openai.chat.completions.runTools({
    model: 'toy', messages: [user], stream: true,
    tools: [{
      type: 'function',
      function: { ...look, parse: JSON.parse, function: (input) => { places.push(input.place); return seen; } },
    }],
  });
  assert.equal(await runner.finalContent(), found);
  assert.deepEqual(places, [place]);
});

test('openai: a custom tool of chat completions', async () => {
  const tools = [{ type: 'custom', custom: { name: 'note', description: 'Runs a program.' } }];
  const { message } = (await openai.chat.completions.create({ model: 'toy', messages: [user], tools })).choices[0];
  const [call] = message.tool_calls;
  assert.equal(call.type, 'custom');
  assert.deepEqual(call.custom, { name: 'note', input: note });
  const messages = [user, message, { role: 'tool', tool_call_id: call.id, content: seen }];
  const last = await openai.chat.completions.create({ model: 'toy', messages, tools });
  assert.equal(last.choices[0].message.content, found);
});

for (const [kind, custom] of [['function_call', false], ['custom_tool_call', true]])
  test(`openai: a loop of responses with a ${kind}`, async () => {
    const tools = [custom ? { type: 'custom', name: 'note' } : { type: 'function', strict: false, ...look }];
    const fields = { model: 'toy', tools, store: false };
    const stream = openai.responses.stream({ ...fields, input: [user] });
    const first = await stream.finalResponse();
    const call = first.output.at(-1);
    assert.equal(call.type, kind);
    if (custom) assert.equal(call.input, note);
    else run(call.name, JSON.parse(call.arguments));
    const output = { type: kind + '_output', call_id: call.call_id, output: seen };
    const last = await openai.responses.create({ ...fields, input: [user, ...first.output, output] });
    assert.equal(last.output_text, found);
  });

// --- @anthropic-ai/sdk ---

test('@anthropic-ai/sdk: a loop of messages, whole and streamed', async () => {
  const client = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
  const fields = {
    model: 'toy', max_tokens: 200,
    tools: [{ name: 'look', description: look.description, input_schema: look.parameters }],
  };
  for (const streams of [false, true]) {
    const first = streams ? await client.messages.stream({ ...fields, messages: [user] }).finalMessage()
                          : await client.messages.create({ ...fields, messages: [user] });
    assert.equal(first.stop_reason, 'tool_use');
    const call = first.content.at(-1);
    const result = { type: 'tool_result', tool_use_id: call.id, content: run(call.name, call.input) };
    const last = await client.messages.create({
      ...fields, messages: [user, { role: 'assistant', content: first.content }, { role: 'user', content: [result] }],
    });
    assert.equal(last.content[0].text, found);
  }
});

// --- ai ---

const models = {
  '@ai-sdk/openai (responses)': () => createOpenAI({ baseURL, apiKey })('toy'),
  '@ai-sdk/openai (chat)': () => createOpenAI({ baseURL, apiKey }).chat('toy'),
  '@ai-sdk/anthropic': () => createAnthropic({ baseURL, apiKey })('toy'),
  '@ai-sdk/openai-compatible': () => createOpenAICompatible({ name: 'troupe', baseURL, apiKey })('toy'),
};
// Else @ai-sdk/openai names earlier items by their ids, which the server has not stored.
const providerOptions = { openai: { store: false } };

for (const [name, model] of Object.entries(models))
  test(`ai with ${name}: a loop, whole and streamed`, async () => {
    for (const streams of [false, true]) {
      const places = [];
      const options = {
        model: model(), prompt: task, maxRetries: 0, stopWhen: stepCountIs(4), providerOptions,
        tools: {
          look: tool({
            description: look.description, inputSchema: z.object({ place: z.string() }),
            execute: async (input) => { places.push(input.place); return seen; },
          }),
        },
      };
      const answer = streams ? streamText(options) : await generateText(options);
      assert.equal(await answer.text, found);
      assert.equal((await answer.steps).length, 2);
      assert.deepEqual(places, [place]);
    }
  });

// --- @langchain/openai ---

for (const useResponsesApi of [false, true])
  test(`@langchain/openai: a loop, ${useResponsesApi ? 'of responses' : 'of chat completions'}`, async () => {
    const chat = new ChatOpenAI({
      model: 'toy', apiKey, configuration: { baseURL }, maxRetries: 0, useResponsesApi, zdrEnabled: useResponsesApi,
    });
    const model = chat.bindTools([lookTool]);
    const first = await model.invoke([new HumanMessage(task)]);
    const [call] = first.tool_calls;
    const result = new ToolMessage({ content: run(call.name, call.args), tool_call_id: call.id });
    const last = await model.invoke([new HumanMessage(task), first, result]);
    assert.equal(last.text, found);
  });

test('@langchain/openai: an object by a call', async () => {
  const chat = new ChatOpenAI({ model: 'toy', apiKey, configuration: { baseURL }, maxRetries: 0, maxTokens: 80 });
  const schema = z.object({ name: z.string(), age: z.number() });
  const object = await chat.withStructuredOutput(schema, { method: 'functionCalling', name: 'fox' }).invoke('Bob is 5.');
  schema.parse(object);
});
