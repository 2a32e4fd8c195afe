// Reads pages: their title over HTTP, and the outline of a text in Markdown.

import { skill, ToolError } from './palyra-skill.js';

const text = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };

export const tools = skill([
  {
    name: 'title',
    description: 'Fetches a page and returns its title.',
    input: { type: 'object', properties: { url: { type: 'string' } }, required: ['url'] },
    async run({ url }) {
      let reply;
      try {
        reply = await fetch(url);
      } catch (error) {
        throw new ToolError('unreachable', `the page cannot be fetched: ${error.message}`);
      }
      const html = await reply.text();
      const title = html.match(/<title[^>]*>([^<]*)<\/title>/i)?.[1].trim() ?? null;
      return { status: reply.status, title };
    },
  },
  {
    name: 'outline',
    description: 'Returns the headings of a text in Markdown.',
    input: text,
    run({ text }) {
      const headings = [];
      for (const line of text.split('\n')) {
        const found = line.match(/^(#{1,6})\s+(.*)$/);
        if (found) headings.push({ level: found[1].length, title: found[2].trim() });
      }
      return { headings };
    },
  },
]);
