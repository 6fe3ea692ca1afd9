// Answers of a form through libraries for node: what each asks for, and reads, is an object that meets the schema, from a
// model that knows nothing of it. node_loops_test.py runs it with the URL of a server of the embedded model in PLAIN.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { generateObject, generateText, streamObject, tool } from 'ai';
import { z } from 'zod';

const url = process.env.PLAIN, baseURL = url + '/v1', apiKey = 'none';
const schema = z.object({
  name: z.string(),
  age: z.number().int().min(0).max(20),
  kind: z.enum(['fox', 'dog']),
  friends: z.array(z.string()),
});
const prompt = 'Once upon a time there was a fox.', messages = [{ role: 'user', content: prompt }];

test('openai: zod in chat completions and in responses', async () => {
  const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const chat = await openai.chat.completions.parse({
    model: 'toy', messages, max_tokens: 80, response_format: zodResponseFormat(schema, 'animal'),
  });
  schema.parse(chat.choices[0].message.parsed);
  const response = await openai.responses.parse({
    model: 'toy', input: messages, max_output_tokens: 80, text: { format: zodTextFormat(schema, 'animal') },
  });
  schema.parse(response.output_parsed);
});

test('anthropic: output_config', async () => {
  const anthropic = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
  const { $schema, ...json } = z.toJSONSchema(schema);
  const answer = await anthropic.messages.create({
    model: 'toy', messages, max_tokens: 80, output_config: { format: { type: 'json_schema', schema: json } },
  });
  schema.parse(JSON.parse(answer.content[0].text));
});

const providers = {
  openai: createOpenAI({ baseURL, apiKey })('toy'),
  'openai chat': createOpenAI({ baseURL, apiKey }).chat('toy'),
  'openai-compatible': createOpenAICompatible({ name: 'troupe', baseURL, apiKey, supportsStructuredOutputs: true })('toy'),
  anthropic: createAnthropic({ baseURL, apiKey })('toy'),  // by a tool that is demanded
};
for (const [name, model] of Object.entries(providers)) {
  test(`ai with ${name}: generateObject`, async () => {
    const { object } = await generateObject({ model, schema, prompt, maxOutputTokens: 80, maxRetries: 0 });
    schema.parse(object);
  });
  test(`ai with ${name}: streamObject`, async () => {
    const stream = streamObject({ model, schema, prompt, maxOutputTokens: 80, maxRetries: 0 });
    for await (const _ of stream.partialObjectStream);
    schema.parse(await stream.object);
  });
}

for (const [name, model] of Object.entries(providers)) {
  test(`ai with ${name}: a demanded call`, async () => {
    const answer = await generateText({
      model, prompt, maxOutputTokens: 120, maxRetries: 0, toolChoice: 'required',
      tools: { note: tool({ description: 'Notes an animal.', inputSchema: schema }) },
    });
    assert.ok(answer.toolCalls.length >= 1);
    for (const call of answer.toolCalls) schema.parse(call.input);
  });
}

test('openai: a strict function that is demanded', async () => {
  const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const chat = await openai.chat.completions.parse({
    model: 'toy', messages, max_tokens: 120, tool_choice: { type: 'function', function: { name: 'note' } },
    tools: [zodFunction({ name: 'note', parameters: schema })],
  });
  for (const call of chat.choices[0].message.tool_calls) schema.parse(call.function.parsed_arguments);
});

test('langchain: withStructuredOutput', async () => {
  const chat = new ChatOpenAI({ model: 'toy', apiKey, configuration: { baseURL }, maxTokens: 80, maxRetries: 0 });
  for (const method of ['jsonSchema', 'functionCalling'])
    schema.parse(await chat.withStructuredOutput(schema, { method, name: 'animal' }).invoke(prompt));
});
