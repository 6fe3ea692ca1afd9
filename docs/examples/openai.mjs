// OpenAI's client for JavaScript, over the server's Unix socket: node openai.mjs SOCKET
// It needs npm's packages openai and undici.
import OpenAI from 'openai';
import { Agent, fetch } from 'undici';

const dispatcher = new Agent({ connect: { socketPath: process.argv[2] } });
const client = new OpenAI({
  baseURL: 'http://localhost/v1',
  apiKey: 'none',  // the kernel says which user is asking
  fetch: (url, options) => fetch(url, { ...options, dispatcher }),
});

const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Tell me of a little fox' }];
const stream = await client.chat.completions.create({ model, messages, max_tokens: 40, stream: true });
for await (const chunk of stream) process.stdout.write(chunk.choices[0].delta.content ?? '');
console.log();
await dispatcher.close();
