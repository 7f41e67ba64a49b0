// Matcher: follows an automaton byte by byte.
//
// A state is a set of places, each a reading node of the automaton and a stack of what comes after it. Stacks and
// states are hash-consed: equal ones have one number, so a state costs nothing to copy or compare, and what a byte
// leads to is computed once. Not thread-safe; must not outlive its automaton.
//
// The set of a state is bounded: beyond kMostPlaces the rest is dropped, which makes some texts unreachable but lets no
// other text through, since each place leads to the end on its own. Compile refuses grammars where that could happen
// without reading; it takes ambiguous repetitions of many lengths.
#ifndef NUNSPARK_TEXT_GRAMMAR_MATCHER_H_
#define NUNSPARK_TEXT_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "text/grammar/automaton.h"

namespace nunspark::text {

class Matcher {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;
  static constexpr size_t kMostPlaces = 4096;

  explicit Matcher(const Automaton& automaton);

  State start() const { return start_; }

  // The state after one more byte; kDead when none of the grammar's texts goes on with it.
  State Step(State state, uint8_t byte) {
    const State next = next_[size_t{state} * classes_ + automaton_->byte_class(byte)];
    return next != kUnknown ? next : ComputeStep(state, byte);
  }
  // The same, but only through places that spell their text out (Spelled::kYes).
  State StepSpelled(State state, uint8_t byte);
  // The state after a special token.
  State StepToken(State state, int32_t token);

  // Whether the text may end here.
  bool accepts(State state) const { return states_[state].accepts; }
  // The special tokens that may come next.
  void AppendTokens(State state, std::vector<int32_t>& tokens) const;

  // A state that goes on in the same way for `bytes` more bytes: counts of repetitions that are further from their
  // limits than that are taken for no limits.
  State Canonical(State state, uint32_t bytes);

  // What plain characters (IsPlainChar) may do in a state.
  struct PlainRun {
    uint32_t most = 0;   // so many may follow in any case, kUnlimited for no end
    bool exact = false;  // and not one more
  };
  PlainRun Plain(State state) const;

  // A state of another matcher of the same automaton, here.
  State Import(const Matcher& from, State state);

  int64_t memory_bytes() const;
  // Places visited so far, a measure of work.
  uint64_t work() const { return work_; }

 private:
  using NodeId = Automaton::NodeId;
  using StackId = uint32_t;
  static constexpr State kUnknown = UINT32_MAX;
  static constexpr StackId kBottom = 0;

  // What happens when the part on top has ended: `node` goes on, or is the repetition with these counts left before
  // the pass that is being read.
  struct Frame {
    NodeId node;
    uint32_t need;
    uint32_t left;
    StackId parent;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  struct Place {
    NodeId node;
    StackId stack;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct StateRecord {
    uint32_t begin;  // of its places
    uint32_t count;
    bool accepts;
  };
  // Open addressing over numbers; 0 is empty.
  struct Table {
    std::vector<uint32_t> slots = std::vector<uint32_t>(64);
    size_t used = 0;
  };

  State ComputeStep(State state, uint8_t byte);
  StackId Push(Frame frame);
  void Visit(NodeId node, StackId stack) { open_.push_back({node, stack}); }
  void VisitRepeat(NodeId node, uint32_t need, uint32_t left, StackId parent);
  // Follows everything that was visited up to the nodes that read, and gives the state of those.
  State Close();
  State Intern(std::vector<Place>& places, bool accepts);
  bool MarkSeen(Place place);
  template <typename Map>
  StackId MapStack(const Matcher& from, StackId stack, std::vector<StackId>& mapped, Map map);

  const Automaton* automaton_;
  const uint32_t classes_;
  State start_ = kDead;
  std::vector<Frame> frames_;
  std::vector<Place> places_;
  std::vector<StateRecord> states_;
  std::vector<State> next_;  // [states, classes]
  Table frame_table_;
  Table state_table_;
  uint64_t work_ = 0;

  // Of one step.
  std::vector<Place> open_;
  std::vector<Place> reading_;
  std::vector<uint64_t> seen_ = std::vector<uint64_t>(256);
  std::vector<uint32_t> seen_step_ = std::vector<uint32_t>(256);
  size_t seen_count_ = 0;
  uint32_t step_ = 0;
  bool accepting_ = false;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_MATCHER_H_
