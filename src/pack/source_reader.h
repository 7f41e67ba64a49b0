// Reads slices of a checkpoint's files, leaving nothing of them in the page cache.
#ifndef NUNSPARK_PACK_SOURCE_READER_H_
#define NUNSPARK_PACK_SOURCE_READER_H_

#include <cstdint>
#include <list>
#include <span>

#include "formats/tensor_index.h"
#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark {

// Keeps a few files open: checkpoints have up to thousands. Borrows the index. Not thread-safe.
class SourceReader {
 public:
  explicit SourceReader(const TensorIndex& index) : index_(index) {}

  // Errors: kDataLoss when the file has become shorter; kNotFound, kPermission, kIo.
  Status Read(int32_t file, int64_t offset, std::span<uint8_t> out);

  // Has the kernel start reading a range that Read will soon ask for. Whatever goes wrong, Read will say.
  void Prefetch(int32_t file, int64_t offset, int64_t bytes);

  // Has the cache forget all of the open files: what Read leaves behind at the edges of slices adds up.
  void DropAll();

 private:
  Result<const File*> Get(int32_t file);

  struct OpenFile {
    int32_t index = 0;
    File file;
  };

  const TensorIndex& index_;
  std::list<OpenFile> open_;  // the one used last comes first
};

// Tells the kernel that a range just read will not be read again soon.
void DropFromCache(const File& file, int64_t offset, int64_t bytes);

}  // namespace nunspark

#endif  // NUNSPARK_PACK_SOURCE_READER_H_
