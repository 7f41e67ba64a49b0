// Expert traces: which experts the routers of a run chose, to ask afterwards what other budgets would have read.
//
// A file of JSON lines, one for each call of a MoE layer: "t" (calls before it), "layer", "fired" (experts of that
// layer, ascending), "batch_tokens" (rows of the pass) and, for several rows, "last_rows": of each fired expert the
// last row that uses it. For rows of several sequences also their number, "sequences", and of each fired expert how
// many rows use it, "row_counts". Traces without these, as the original Nunspark writes them, are read too.
#ifndef NUNSPARK_WEIGHTS_EXPERT_TRACE_H_
#define NUNSPARK_WEIGHTS_EXPERT_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/file.h"
#include "models/model_layout.h"
#include "models/weight_source.h"
#include "nunspark/status.h"
#include "weights/memory_plan.h"
#include "weights/piece_index.h"

namespace nunspark {

// Used by the thread that runs the forward pass.
class ExpertTraceWriter {
 public:
  // Creates or truncates the file. `layout` must outlive the writer. Errors: kNotFound, kPermission, kIo.
  static Result<std::unique_ptr<ExpertTraceWriter>> Create(const std::string& path, const ModelLayout& layout);
  // What Flush has not written is lost.
  ~ExpertTraceWriter() = default;

  void Add(const RoutedExperts& routed, const PassInfo& pass);

  // Writes all lines so far. Errors: of this and of every earlier write (kResourceExhausted, kIo).
  Status Flush();

 private:
  ExpertTraceWriter(File file, const ModelLayout& layout) : layout_(layout), file_(std::move(file)) {}

  const ModelLayout& layout_;
  File file_;
  int64_t bytes_ = 0;  // written
  int64_t calls_ = 0;
  Status status_;
  std::string text_;
  struct Fired {
    int32_t expert, last_row, rows;
  };
  std::vector<Fired> fired_;  // room for sorting
};

struct ExpertCall {
  int32_t layer = 0;
  int64_t batch_tokens = 1;
  std::vector<int32_t> fired;      // ascending
  std::vector<int32_t> last_rows;  // [fired]
  int32_t sequences = 1;
  std::vector<int32_t> row_counts = {};  // [fired], or empty: one each
};
using ExpertTrace = std::vector<ExpertCall>;

// Errors: those of the file; kDataLoss for a line that breaks the rules or does not fit the model.
Result<ExpertTrace> LoadExpertTrace(const std::string& path, const ModelLayout& layout);

struct ReplayCounts {
  int64_t tokens = 0;
  int64_t hits = 0;  // of experts
  int64_t misses = 0;
  int64_t bytes_read = 0;  // of layers, alignment included

  double hit_rate() const;
  double bytes_per_token() const;
};

struct ReplayedTrace {
  ReplayCounts all;
  ReplayCounts decode;  // calls of one row
};

// What a PieceCache with this plan would read, without prefetch: the trace runs through the cache itself, over a drive
// that answers at once and delivers nothing. Errors: kResourceExhausted when the system refuses address space of the
// size of the plan's regions.
Result<ReplayedTrace> ReplayLru(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                                const ExpertTrace& trace);

// The least that any choice of what to keep could read with as many expert slots: Belady's, which knows the future, and
// lets experts pass without keeping them. Cores as in ReplayLru.
Result<ReplayedTrace> ReplayOptimum(const ModelLayout& layout, const PieceIndex& index, const MemoryPlan& plan,
                                    const ExpertTrace& trace);

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_EXPERT_TRACE_H_
