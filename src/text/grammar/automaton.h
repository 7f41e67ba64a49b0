// A grammar as one automaton: nodes that read a byte or a token, and nodes that choose, call a rule or repeat.
//
// Immutable after Compile; may be read by many threads. Every node can reach the end: parts that derive no text are
// left out, so whoever follows the automaton never gets stuck.
#ifndef NUNSPARK_TEXT_GRAMMAR_AUTOMATON_H_
#define NUNSPARK_TEXT_GRAMMAR_AUTOMATON_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "nunspark/status.h"
#include "text/grammar/grammar.h"

namespace nunspark::text {

// Characters a JSON string and nearly every free text may have anywhere: all from U+0020 but '"', '\' and U+007F.
bool IsPlainChar(uint32_t code_point);
// Whether a byte begins such a character.
bool IsPlainLead(uint8_t byte);

class Automaton {
 public:
  using NodeId = uint32_t;
  static constexpr NodeId kEnd = 0;  // of a rule, of a repeated part, of the whole

  enum class Kind : uint8_t { kEnd, kBytes, kToken, kSplit, kCall, kRepeat };
  struct Node {
    Kind kind = Kind::kEnd;
    Spelled spelled = Spelled::kNo;  // kBytes
    bool plain = false;              // kBytes: reads any plain character, then ends the part it is in
    bool closed = false;             // kRepeat: what follows cannot begin with a plain character
    uint32_t first = 0;              // kBytes: edge; kSplit: target; kToken: token; kCall: rule; kRepeat: body
    uint32_t count = 0;              // kBytes: edges; kSplit: targets
    uint32_t min = 0;                // kRepeat
    uint32_t max = 0;                // kRepeat, kUnlimited for no end
    NodeId next = kEnd;              // kToken, kCall, kRepeat
  };
  struct Edge {
    uint8_t first;
    uint8_t last;
    NodeId next;
  };

  // Errors: kInvalidArgument for rules that begin with themselves, repeated parts that may be empty, a root that
  // derives nothing; kResourceExhausted for grammars that are too large or can begin in too many ways at once.
  static Result<Automaton> Compile(const Grammar& grammar, RuleId root);

  const Node& node(NodeId id) const { return nodes_[id]; }
  std::span<const Edge> edges(const Node& n) const { return std::span(edges_).subspan(n.first, n.count); }
  std::span<const NodeId> targets(const Node& n) const { return std::span(targets_).subspan(n.first, n.count); }
  NodeId rule_start(RuleId rule) const { return rule_starts_[rule]; }
  NodeId start() const { return rule_starts_[root_]; }
  size_t node_count() const { return nodes_.size(); }

  // Bytes that no edge tells apart have the same class.
  uint8_t byte_class(uint8_t byte) const { return classes_[byte]; }
  uint32_t class_count() const { return class_count_; }

  int64_t memory_bytes() const;

 private:
  friend class AutomatonBuilder;

  std::vector<Node> nodes_{1};
  std::vector<Edge> edges_;
  std::vector<NodeId> targets_;
  std::vector<NodeId> rule_starts_;
  RuleId root_ = 0;
  std::array<uint8_t, 256> classes_{};
  uint32_t class_count_ = 1;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_AUTOMATON_H_
