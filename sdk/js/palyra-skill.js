// Write skills for Palyra in JavaScript:
//
//     import { skill, ToolError } from './palyra-skill.js';
//
//     export const tools = skill([{
//       name: 'shout',
//       description: 'Writes a text in capital letters.',
//       input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
//       run({ text }) { return { shouted: text.toUpperCase() }; },
//     }]);
//
// `run` takes the input and returns the output, or a promise of it; both are JSON. The host's interfaces are imported by their full names,
// such as 'palyra:skill/storage@1.0.0' for the private store; import only what you use, because each has to be granted.

/** Why a tool did not do what it was asked: a short stable name, and a sentence for a person. */
export class ToolError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** What the host calls, made from a list of tools. */
export function skill(list) {
  const find = (name) => {
    const found = list.find((tool) => tool.name === name);
    if (!found) throw new ToolError('unknown_tool', `this skill has no tool \`${name}\``);
    return found;
  };
  return {
    describe: () => list.map(({ name, description, input, output }) => ({
      name,
      description,
      inputSchema: JSON.stringify(input ?? { type: 'object' }),
      outputSchema: output === undefined ? undefined : JSON.stringify(output),
    })),
    async invoke(name, inputJson) {
      try {
        return JSON.stringify(await find(name).run(JSON.parse(inputJson)) ?? null);
      } catch (error) {
        // The host expects an error as this record, and takes anything else for a crash.
        throw { code: error.code ?? 'failed', message: String(error.message ?? error) };
      }
    },
  };
}
