// The npm package `tokenizers` (the Rust library) as a process that answers JSON lines, for tokenizer_oracle.py.
//
//     node npm_tokenizers.mjs FOLDER   (where `npm install tokenizers` was run)
//
// In:  {"load": PATH}, {"encode": TEXT, "special": BOOL}, {"decode": IDS, "skip": BOOL}, {"token": TEXT} or {"size": true}
// Out: {"ok": VALUE} or {"failed": MESSAGE}
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { resolve } from 'node:path';

const { Tokenizer } = createRequire(resolve(process.argv[2], 'x.js'))('tokenizers');
let tokenizer = null;

async function answer(request) {
  if ('load' in request) {
    tokenizer = Tokenizer.fromFile(request.load);
    tokenizer.disablePadding();
    tokenizer.disableTruncation();
    return true;
  }
  if ('encode' in request) {
    return (await tokenizer.encode(request.encode, null, { addSpecialTokens: request.special })).getIds();
  }
  if ('decode' in request) return tokenizer.decode(request.decode, request.skip);
  if ('token' in request) {
    const id = tokenizer.tokenToId(request.token);
    return id === null ? null : tokenizer.idToToken(id);
  }
  return tokenizer.getVocabSize(true);
}

for await (const line of createInterface({ input: process.stdin })) {
  let out;
  try {
    out = { ok: await answer(JSON.parse(line)) };
  } catch (error) {
    out = { failed: String(error) };
  }
  process.stdout.write(JSON.stringify(out) + '\n');
}
