// Answers as files of the person who looks at the page, wherever the program runs.

const kTable = Uint32Array.from({length: 256}, (_, i) => {
  for (let bit = 0; bit < 8; ++bit) i = i & 1 ? (i >>> 1) ^ 0xedb88320 : i >>> 1;
  return i;
});

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ kTable[(crc ^ byte) & 0xff];
  return ~crc >>> 0;
}

// Numbers of 2 or 4 bytes, little endian, as [size, value].
function fields(...list) {
  const bytes = new Uint8Array(list.reduce((sum, [size]) => sum + size, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const [size, value] of list) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return bytes;
}

// A ZIP archive of [{name, content}], contents as bytes, as a Blob: stored, names in UTF-8, dated 1980-01-01 so that equal answers are equal
// archives. Fewer than 65536 files, 4 GiB in all.
export function makeZip(files) {
  const parts = [], directory = [];
  let at = 0;
  for (const {name, content} of files) {
    const path = new TextEncoder().encode(name);
    // Version 2.0, flags (names are UTF-8), stored, time, date, checksum, sizes, lengths of name and extra field.
    const common = fields([2, 20], [2, 0x800], [2, 0], [2, 0], [2, 0x21], [4, crc32(content)], [4, content.length],
      [4, content.length], [2, path.length], [2, 0]);
    directory.push(fields([4, 0x02014b50], [2, 20]), common, fields([2, 0], [2, 0], [2, 0], [4, 0], [4, at]), path);
    parts.push(fields([4, 0x04034b50]), common, path, content);
    at += 4 + common.length + path.length + content.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = fields([4, 0x06054b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, size], [4, at], [2, 0]);
  return new Blob([...parts, ...directory, end], {type: 'application/zip'});
}

// Hands `blob` to the browser as a download.
export function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
