// Called by the builder: build.mjs COMPONENTIZE SOURCE WIT UNUSED-FEATURES OUTPUT
import { writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

const [componentizeJs, sourcePath, witPath, unused, output] = process.argv.slice(2);
const { componentize } = await import(pathToFileURL(componentizeJs));
const disableFeatures = unused.split(',').filter(Boolean);
const { component } = await componentize({ sourcePath, witPath, worldName: 'built', disableFeatures });
await writeFile(output, component);
