// How the clients of these tests reach a server: over its Unix socket or over TCP, by undici's fetch. Every answer is also
// written to a file, for clients_test.py to compare with the published schemas. All of it comes by environment variables.
import { appendFileSync } from 'node:fs';
import { Agent, Response, fetch } from 'undici';

const env = process.env;
export const overSocket = Boolean(env.CLIENTS_SOCKET_MODEL);
export const key = env.CLIENTS_KEY ?? 'any';

// A server: 'MODEL' talks, 'ENCODER' makes vectors, 'NARROW' has room for few requests of a user.
export class Transport {
  constructor(server) {
    const socketPath = overSocket ? env[`CLIENTS_SOCKET_${server}`] : undefined;
    this.baseURL = overSocket ? 'http://localhost' : env[`CLIENTS_URL_${server}`];
    this.agent = new Agent(socketPath ? { connect: { socketPath } } : {});
    this.statuses = [];  // of all answers so far
    this.answers = [];   // as they will be written
    this.record = true;
    this.fetch = async (input, init = {}) => {
      const response = await fetch(input, { ...init, dispatcher: this.agent });
      this.statuses.push(response.status);
      return this.record ? this.#recorded(init.method ?? 'GET', input, response) : response;
    };
  }

  // The same answer, of which all that its reader takes is kept.
  #recorded(method, input, response) {
    const { status, headers } = response;
    const type = headers.get('content-type') ?? '';
    const answer = { method, path: new URL(input).pathname, status, type, body: '', complete: false };
    this.answers.push(answer);
    const decoder = new TextDecoder();
    const keep = new TransformStream({
      transform(piece, controller) {
        answer.body += decoder.decode(piece, { stream: true });
        controller.enqueue(piece);
      },
      flush() { answer.complete = true; },
    });
    return new Response(response.body?.pipeThrough(keep), { status, headers });
  }

  async close() {
    for (const answer of this.answers) {
      // A client may leave in the middle of an event.
      if (!answer.complete) answer.body = answer.body.slice(0, answer.body.lastIndexOf('\n\n') + 2);
      appendFileSync(env.CLIENTS_RECORD, JSON.stringify(answer) + '\n');
    }
    await this.agent.destroy();
  }

  // A sample of /metrics: the sum of all lines with this name and these texts in their labels.
  async metric(name, ...labels) {
    const response = await this.fetch(this.baseURL + '/metrics', { headers: { authorization: `Bearer ${key}` } });
    const lines = (await response.text()).split('\n').filter((line) => line.split(/[{ ]/)[0] === name);
    return lines.filter((line) => labels.every((label) => line.includes(label)))
      .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  // Waits until the sample satisfies `holds`; the test's own timeout ends it.
  async until(holds, name, ...labels) {
    for (let value; !holds(value = await this.metric(name, ...labels)););
  }
}
