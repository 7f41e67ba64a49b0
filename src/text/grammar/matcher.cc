#include "text/grammar/matcher.h"

#include <algorithm>

namespace nunspark::text {
namespace {

using Kind = Automaton::Kind;

// Of one step; a place costs one, so does what leads to it.
constexpr size_t kMostVisits = 16 * Matcher::kMostPlaces;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

uint32_t OneLess(uint32_t count) { return count == kUnlimited || count == 0 ? count : count - 1; }

// Finds the number in `table` for which `equal` holds, or enters `fresh` in its place. `hash_of` gives the hash of a
// number that is in the table already.
template <typename Table, typename Equal, typename HashOf>
uint32_t FindOrEnter(Table& table, uint64_t hash, uint32_t fresh, Equal equal, HashOf hash_of) {
  if (2 * (table.used + 1) > table.slots.size()) {
    std::vector<uint32_t> slots(2 * table.slots.size());
    for (const uint32_t number : table.slots) {
      if (number == 0) continue;
      size_t at = hash_of(number) & (slots.size() - 1);
      while (slots[at] != 0) at = (at + 1) & (slots.size() - 1);
      slots[at] = number;
    }
    table.slots = std::move(slots);
  }
  size_t at = hash & (table.slots.size() - 1);
  for (; table.slots[at] != 0; at = (at + 1) & (table.slots.size() - 1)) {
    if (equal(table.slots[at])) return table.slots[at];
  }
  table.slots[at] = fresh;
  ++table.used;
  return fresh;
}

bool HasPlainLead(std::span<const Automaton::Edge> edges) {
  for (const Automaton::Edge& edge : edges) {
    for (uint32_t byte = edge.first; byte <= edge.last; ++byte) {
      if (IsPlainLead(static_cast<uint8_t>(byte))) return true;
    }
  }
  return false;
}

}  // namespace

Matcher::Matcher(const Automaton& automaton) : automaton_(&automaton), classes_(automaton.class_count()) {
  frames_.push_back({});  // the bottom
  states_.push_back({});  // the dead state
  next_.assign(classes_, kDead);
  Visit(automaton.start(), kBottom);
  start_ = Close();
}

Matcher::StackId Matcher::Push(Frame frame) {
  const auto hash = [](const Frame& f) { return Mix(Mix(Mix(f.node, f.parent), f.need), f.left); };
  const auto fresh = static_cast<uint32_t>(frames_.size());
  const StackId id = FindOrEnter(
      frame_table_, hash(frame), fresh, [&](uint32_t number) { return frames_[number] == frame; },
      [&](uint32_t number) { return hash(frames_[number]); });
  if (id == fresh) frames_.push_back(frame);
  return id;
}

void Matcher::VisitRepeat(NodeId node, uint32_t need, uint32_t left, StackId parent) {
  const Automaton::Node& n = automaton_->node(node);
  if (left > 0) Visit(n.first, Push({node, need, left, parent}));
  if (need == 0) Visit(n.next, parent);
}

bool Matcher::MarkSeen(Place place) {
  if (2 * (seen_count_ + 1) > seen_.size()) {
    std::vector<uint64_t> seen(2 * seen_.size());
    std::vector<uint32_t> steps(2 * seen_.size());
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (seen_step_[i] != step_) continue;
      size_t at = Mix(seen_[i], 1) & (seen.size() - 1);
      while (steps[at] == step_) at = (at + 1) & (seen.size() - 1);
      seen[at] = seen_[i];
      steps[at] = step_;
    }
    seen_ = std::move(seen);
    seen_step_ = std::move(steps);
  }
  const uint64_t key = uint64_t{place.node} << 32 | place.stack;
  size_t at = Mix(key, 1) & (seen_.size() - 1);
  for (; seen_step_[at] == step_; at = (at + 1) & (seen_.size() - 1)) {
    if (seen_[at] == key) return false;
  }
  seen_[at] = key;
  seen_step_[at] = step_;
  ++seen_count_;
  return true;
}

Matcher::State Matcher::Close() {
  ++step_;
  seen_count_ = 0;
  reading_.clear();
  accepting_ = false;
  size_t visits = 0;
  while (!open_.empty() && reading_.size() < kMostPlaces && visits < kMostVisits) {
    const Place place = open_.back();
    open_.pop_back();
    if (!MarkSeen(place)) continue;
    ++visits;
    const Automaton::Node& node = automaton_->node(place.node);
    switch (node.kind) {
      case Kind::kBytes:
      case Kind::kToken: reading_.push_back(place); break;
      case Kind::kSplit: {
        const std::span<const NodeId> targets = automaton_->targets(node);
        for (size_t i = targets.size(); i-- > 0;) Visit(targets[i], place.stack);
        break;
      }
      case Kind::kCall:
        // Nothing is kept for a call at the end of its rule: lists may be written as rules that end in themselves.
        Visit(automaton_->rule_start(node.first),
              node.next == Automaton::kEnd ? place.stack : Push({node.next, 0, 0, place.stack}));
        break;
      case Kind::kRepeat: VisitRepeat(place.node, node.min, node.max, place.stack); break;
      case Kind::kEnd: {
        if (place.stack == kBottom) {
          accepting_ = true;
          break;
        }
        const Frame frame = frames_[place.stack];
        if (automaton_->node(frame.node).kind == Kind::kRepeat && frame.left > 0) {
          VisitRepeat(frame.node, OneLess(frame.need), OneLess(frame.left), frame.parent);
        } else {
          Visit(frame.node, frame.parent);
        }
        break;
      }
    }
  }
  open_.clear();
  work_ += visits + 1;
  return Intern(reading_, accepting_);
}

Matcher::State Matcher::Intern(std::vector<Place>& places, bool accepts) {
  if (places.empty() && !accepts) return kDead;
  std::sort(places.begin(), places.end(),
            [](Place a, Place b) { return a.node != b.node ? a.node < b.node : a.stack < b.stack; });
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const auto hash = [](std::span<const Place> of, bool accepting) {
    uint64_t mixed = accepting ? 1 : 2;
    for (const Place place : of) mixed = Mix(mixed, uint64_t{place.node} << 32 | place.stack);
    return mixed;
  };
  const auto places_of = [&](uint32_t number) {
    return std::span<const Place>(places_).subspan(states_[number].begin, states_[number].count);
  };
  const auto fresh = static_cast<uint32_t>(states_.size());
  const State state = FindOrEnter(
      state_table_, hash(places, accepts), fresh,
      [&](uint32_t number) {
        const std::span<const Place> other = places_of(number);
        return states_[number].accepts == accepts &&
               std::equal(other.begin(), other.end(), places.begin(), places.end());
      },
      [&](uint32_t number) { return hash(places_of(number), states_[number].accepts); });
  if (state == fresh) {
    states_.push_back({static_cast<uint32_t>(places_.size()), static_cast<uint32_t>(places.size()), accepts});
    places_.insert(places_.end(), places.begin(), places.end());
    next_.resize(next_.size() + classes_, kUnknown);
  }
  return state;
}

Matcher::State Matcher::ComputeStep(State state, uint8_t byte) {
  const StateRecord record = states_[state];
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    const Automaton::Node& node = automaton_->node(places_[i].node);
    if (node.kind != Kind::kBytes) continue;
    for (const Automaton::Edge& edge : automaton_->edges(node)) {
      if (edge.first <= byte && byte <= edge.last) Visit(edge.next, places_[i].stack);
    }
  }
  work_ += record.count;
  const State next = open_.empty() ? kDead : Close();
  next_[size_t{state} * classes_ + automaton_->byte_class(byte)] = next;
  return next;
}

Matcher::State Matcher::StepSpelled(State state, uint8_t byte) {
  const StateRecord record = states_[state];
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    const Automaton::Node& node = automaton_->node(places_[i].node);
    if (node.kind != Kind::kBytes || node.spelled == Spelled::kNo) continue;
    for (const Automaton::Edge& edge : automaton_->edges(node)) {
      if (edge.first <= byte && byte <= edge.last) Visit(edge.next, places_[i].stack);
    }
  }
  work_ += record.count;
  return open_.empty() ? kDead : Close();
}

Matcher::State Matcher::StepToken(State state, int32_t token) {
  const StateRecord record = states_[state];
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    const Automaton::Node& node = automaton_->node(places_[i].node);
    if (node.kind == Kind::kToken && node.first == static_cast<uint32_t>(token)) Visit(node.next, places_[i].stack);
  }
  return open_.empty() ? kDead : Close();
}

void Matcher::AppendTokens(State state, std::vector<int32_t>& tokens) const {
  const StateRecord record = states_[state];
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    const Automaton::Node& node = automaton_->node(places_[i].node);
    if (node.kind == Kind::kToken) tokens.push_back(static_cast<int32_t>(node.first));
  }
}

// The stack of `from` here, with `map` applied to each frame. Deep stacks are walked, not recursed into.
template <typename Map>
Matcher::StackId Matcher::MapStack(const Matcher& from, StackId stack, std::vector<StackId>& mapped, Map map) {
  mapped.clear();
  for (StackId at = stack; at != kBottom; at = from.frames_[at].parent) mapped.push_back(at);
  StackId result = kBottom;
  for (size_t i = mapped.size(); i-- > 0;) {
    Frame frame = map(from.frames_[mapped[i]]);
    frame.parent = result;
    result = Push(frame);
  }
  return result;
}

Matcher::State Matcher::Canonical(State state, uint32_t bytes) {
  const auto far = [bytes](Frame frame) {
    if (frame.need > bytes) frame.need = kUnlimited;
    if (frame.left > bytes) frame.left = kUnlimited;
    return frame;
  };
  const StateRecord record = states_[state];
  std::vector<Place> places;
  std::vector<StackId> path;
  places.reserve(record.count);
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    const Place place = places_[i];
    places.push_back({place.node, MapStack(*this, place.stack, path, far)});
  }
  return Intern(places, record.accepts);
}

Matcher::State Matcher::Import(const Matcher& from, State state) {
  const StateRecord record = from.states_[state];
  std::vector<Place> places;
  std::vector<StackId> path;
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    const Place place = from.places_[i];
    places.push_back({place.node, MapStack(from, place.stack, path, [](Frame frame) { return frame; })});
  }
  return Intern(places, record.accepts);
}

Matcher::PlainRun Matcher::Plain(State state) const {
  const StateRecord record = states_[state];
  PlainRun run;
  uint32_t run_at = UINT32_MAX;
  for (uint32_t i = record.begin; i < record.begin + record.count; ++i) {
    if (!automaton_->node(places_[i].node).plain || places_[i].stack == kBottom) continue;
    const Frame& frame = frames_[places_[i].stack];
    const Automaton::Node& repeat = automaton_->node(frame.node);
    if (repeat.kind != Kind::kRepeat || frame.left <= run.most) continue;
    run = {frame.left, repeat.closed};
    run_at = i;
  }
  // Exact when nothing but this one place reads plain characters, now or after it.
  for (uint32_t i = record.begin; run.exact && i < record.begin + record.count; ++i) {
    const Automaton::Node& node = automaton_->node(places_[i].node);
    if (i != run_at && node.kind == Kind::kBytes && HasPlainLead(automaton_->edges(node))) run.exact = false;
  }
  return run;
}

int64_t Matcher::memory_bytes() const {
  return static_cast<int64_t>(frames_.capacity() * sizeof(Frame) + places_.capacity() * sizeof(Place) +
                              states_.capacity() * sizeof(StateRecord) + next_.capacity() * sizeof(State) +
                              (frame_table_.slots.capacity() + state_table_.slots.capacity()) * sizeof(uint32_t) +
                              seen_.capacity() * 12 + sizeof(*this));
}

}  // namespace nunspark::text
