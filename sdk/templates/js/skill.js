// The skill `{{name}}`.

import { skill, ToolError } from './palyra-skill.js';

export const tools = skill([
  {
    name: 'greet',
    description: 'Greets somebody by name.',
    input: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    output: { type: 'object', properties: { greeting: { type: 'string' } }, required: ['greeting'] },
    run({ name }) {
      if (name === '') throw new ToolError('empty_name', 'there is nobody to greet');
      return { greeting: `Hello, ${name}!` };
    },
  },
]);
