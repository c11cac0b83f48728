// Templates: programs whose numbers follow from an image's size, and from numbers that are drawn for it, by a few
// operations. Comparisons among these say for which images a template holds. Python writes them down while it goes the same
// way (`pipelines/recording.py`), which is the plain twin; what none of them is for is left to it.
#pragma once

#include <cmath>
#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/draws/walk.h"

namespace polyphase {

// Every operation gives a number, which has the next place; a draw gives several, and a comparison none.
struct Operation {
  enum Kind : int64_t {
    kConstant, kDraw, kAdd, kSubtract, kMultiply, kDivide, kFloor, kCeil, kRound, kTrunc, kRoot, kLess, kLessOrEqual, kEqual,
    kKinds
  };
  int64_t kind;
  int64_t a, b;  // places of operands   kDraw: of the height and width of the image as it is by then
  int64_t c;     // kDraw: where its row begins among all draws: a length, and so many numbers
  double value;  // kConstant: it   kDraw: how many numbers it gave   comparisons: whether they held

  bool is_comparison() const { return kind >= kLess; }
  bool is_like(const Operation& other) const {
    return kind == other.kind && a == other.a && b == other.b && (is_comparison() || value == other.value);
  }
};
static_assert(sizeof(Operation) == 40);

// A step of an axis, with the places of its first two numbers, or -1 where these are the step's own.
struct OpenStep {
  Step step;
  int64_t a, b;
};

// A template as it was written down. Behind it follow its operations, draws, and steps of rows and of columns.
struct WrittenTemplate {
  int64_t program;  // the number of those that it shares all but numbers with; -1 where images are not for templates
  int64_t operations, draws;
  int64_t steps[2];
  int64_t size[2];  // places of the height and width of the result

  int64_t bytes() const {
    const int64_t steps_of_both = (steps[0] + steps[1]) * static_cast<int64_t>(sizeof(OpenStep));
    return static_cast<int64_t>(sizeof(*this)) + operations * static_cast<int64_t>(sizeof(Operation)) + draws * 8 + steps_of_both;
  }
};

// What an image's rows and columns go through.
class Followed {
 public:
  static constexpr int64_t kMostSteps = 16;

  int64_t program = -1;  // as a template has it
  int64_t size(int axis) const { return size_[axis]; }
  int64_t steps(int axis) const { return count_[axis]; }
  const Step* step(int axis) const { return steps_[axis]; }

  // False where a number is none of a size or place, or a step does not fit what is before it.
  bool fill(const WrittenTemplate& ending, const OpenStep* open, const double* numbers, const int64_t* image) {
    program = ending.program;
    for (int axis = 0; axis < 2; ++axis) {
      int64_t length = image[axis];
      count_[axis] = ending.steps[axis];
      for (int64_t i = 0; i < count_[axis]; ++i, ++open) {
        Step& step = steps_[axis][i] = open->step;
        if (!close(numbers, open->a, &step.a) || !close(numbers, open->b, &step.b) || !apply(step, &length)) return false;
      }
      if (!close(numbers, ending.size[axis], &size_[axis]) || size_[axis] != length || length < 1) return false;
    }
    return true;
  }

 private:
  static constexpr double kMostNumber = 1 << 30;

  static bool close(const double* numbers, int64_t place, int64_t* to) {
    if (place < 0) return true;
    const double number = numbers[place];
    if (!(std::fabs(number) <= kMostNumber) || number != std::trunc(number)) return false;
    *to = static_cast<int64_t>(number);
    return true;
  }

  static bool apply(const Step& step, int64_t* length) {
    switch (step.kind) {
      case Step::kResize:
      case Step::kNearest: *length = step.a; return step.a >= 1;
      case Step::kFlip: return true;
      case Step::kSlice: {
        const bool lies_within = 0 <= step.a && step.a < step.b && step.b <= *length && step.c == 1;
        *length = step.b - step.a;
        return lies_within;
      }
      case Step::kPad: {
        const int64_t most = step.c == kReflect ? *length - 1 : step.c == kSymmetric ? *length : max(step.a, step.b);
        *length += step.a + step.b;
        return min(step.a, step.b) >= 0 && max(step.a, step.b) <= most;
      }
      default: return false;
    }
  }

  int64_t size_[2];
  int64_t count_[2] = {0, 0};
  Step steps_[2][kMostSteps];
};

// Where the numbers of draws come from: a generator's state, or such as were drawn before.
class Drawn {
 public:
  Drawn(const double* numbers, int64_t count) : next_(numbers), end_(numbers + count) {}
  Drawn(GeneratorState* state, Drawing drawing) : state_(state), drawing_(drawing) {}

  // Appends as many numbers as there were; false where they are others.
  bool take(const double* row, int64_t height, int64_t width, int64_t count, Buffer<double>* numbers) {
    if (state_ == nullptr) {
      if (end_ - next_ < count) return false;
      for (int64_t i = 0; i < count; ++i) numbers->push_back(*next_++);
      return true;
    }
    const int64_t before = numbers->size();
    Generator generator(*state_, drawing_.rounding);
    DrawWalk walk(generator, drawing_.exp, height, width, *numbers);
    return walk.take_all(row + 1, row + 1 + static_cast<int64_t>(row[0])) && numbers->size() - before == count;
  }

 private:
  GeneratorState* state_ = nullptr;
  Drawing drawing_ = {nullptr, 0};
  const double *next_ = nullptr, *end_ = nullptr;
};

// All of one kind of images. They share what they begin with: as Python goes one way for the same numbers, two differ first
// in what a comparison says.
class Templates {
 public:
  static constexpr int64_t kMostNodes = 1 << 16;

  // False where it is no template, or there is no room for it.
  bool learn(const uint8_t* data, int64_t bytes) {
    WrittenTemplate written;
    if (bytes < static_cast<int64_t>(sizeof(written))) return false;
    std::memcpy(&written, data, sizeof(written));
    if (!is_whole(written, bytes) || nodes_.size() + written.operations > kMostNodes) return false;
    const auto* const operations = reinterpret_cast<const Operation*>(data + sizeof(written));
    const auto* const draws = reinterpret_cast<const double*>(operations + written.operations);
    if (!are_whole(operations, draws, written)) return false;
    int64_t* link = &first_;
    for (int64_t i = 0; i < written.operations; ++i) {
      if (*link == 0) link = add(operations[i], draws, link);
      if (*link < 0 || !nodes_[*link - 1].operation.is_like(operations[i])) return false;
      link = &nodes_[*link - 1].next[operations[i].is_comparison() && operations[i].value == 0 ? 0 : 1];
    }
    if (*link != 0) return false;
    const auto* const open = reinterpret_cast<const OpenStep*>(draws + written.draws);
    const int64_t first = open_.size(), count = written.steps[0] + written.steps[1];
    open_.resize(first + count);
    std::memcpy(open_.data() + first, open, count * sizeof(OpenStep));
    endings_.push_back({written, first});
    *link = -endings_.size();
    return true;
  }

  // One after the other, as far as they are templates.
  void learn_all(const uint8_t* data, int64_t bytes) {
    WrittenTemplate written;
    while (bytes >= static_cast<int64_t>(sizeof(written))) {
      std::memcpy(&written, data, sizeof(written));
      if (written.operations < 0 || written.draws < 0 || written.bytes() > bytes || !learn(data, written.bytes())) return;
      data += written.bytes();
      bytes -= written.bytes();
    }
  }

  // False for an image that no template is for, or whose draws are not ours to make.
  bool follow(const int64_t* size, Drawn drawn, Followed* followed) const {
    Kept<Buffer<double>> numbers;
    numbers->resize(0);
    numbers->push_back(static_cast<double>(size[0]));
    numbers->push_back(static_cast<double>(size[1]));
    int64_t link = first_;
    while (link > 0) {
      const Node& node = nodes_[link - 1];
      int64_t way = 1;
      if (!take(node.operation, drawn, &*numbers, &way)) return false;
      link = node.next[way];
    }
    if (link == 0) return false;
    const Ending& ending = endings_[-link - 1];
    if (ending.written.program < 0) return true;
    return followed->fill(ending.written, open_.data() + ending.first, numbers->data(), size);
  }

 private:
  struct Node {
    Operation operation;
    int64_t next[2];  // of a comparison: where it does not hold, where it does. 0: not known; below: an ending, from -1 on
  };
  struct Ending {
    WrittenTemplate written;
    int64_t first;  // of its steps
  };

  static bool is_whole(const WrittenTemplate& one, int64_t bytes) {
    for (const int64_t count : {one.operations, one.draws}) {
      if (count < 0 || count > kMostNodes) return false;
    }
    for (const int64_t count : one.steps) {
      if (count < 0 || count > Followed::kMostSteps) return false;
    }
    return one.bytes() == bytes;
  }

  // Whether every place is one that a number has by then.
  static bool are_whole(const Operation* operations, const double* draws, const WrittenTemplate& of) {
    int64_t places = 2;
    const auto is_place = [&](int64_t place) { return place >= 0 && place < places; };
    for (const Operation* one = operations; one < operations + of.operations; ++one) {
      if (one->kind < 0 || one->kind >= Operation::kKinds) return false;
      if (one->kind != Operation::kConstant && !(is_place(one->a) && is_place(one->b))) return false;
      if (one->kind == Operation::kDraw) {
        if (one->c < 0 || one->c >= of.draws || !(draws[one->c] >= 0 && draws[one->c] < of.draws - one->c)) return false;
        if (!(one->value >= 0 && one->value <= kMostNodes)) return false;
        places += static_cast<int64_t>(one->value);
      } else {
        places += one->is_comparison() ? 0 : 1;
      }
    }
    const auto* const open = reinterpret_cast<const OpenStep*>(draws + of.draws);
    for (const OpenStep* one = open; one < open + of.steps[0] + of.steps[1]; ++one) {
      if (one->a >= places || one->b >= places) return false;
    }
    return of.program < 0 || (is_place(of.size[0]) && is_place(of.size[1]));
  }

  // What a link leads to from then on; the link, which moves with its node.
  int64_t* add(Operation operation, const double* draws, int64_t* link) {
    const int64_t at = link == &first_ ? -1 : link - reinterpret_cast<int64_t*>(nodes_.data());
    if (operation.kind == Operation::kDraw) {
      const double* const row = draws + operation.c;
      operation.c = draws_.size();
      for (int64_t i = 0; i <= static_cast<int64_t>(row[0]); ++i) draws_.push_back(row[i]);
    }
    nodes_.push_back({operation, {0, 0}});
    int64_t* const moved = at < 0 ? &first_ : reinterpret_cast<int64_t*>(nodes_.data()) + at;
    *moved = nodes_.size();
    return moved;
  }

  bool take(const Operation& one, Drawn& drawn, Buffer<double>* numbers, int64_t* way) const {
    if (one.kind == Operation::kConstant) return give(one.value, numbers);
    const double a = (*numbers)[one.a], b = (*numbers)[one.b];
    switch (one.kind) {
      case Operation::kDraw: return draw(one, drawn, a, b, numbers);
      case Operation::kAdd: return give(a + b, numbers);
      case Operation::kSubtract: return give(a - b, numbers);
      case Operation::kMultiply: return give(a * b, numbers);
      case Operation::kDivide: return give(a / b, numbers);
      case Operation::kFloor: return give(std::floor(a), numbers);
      case Operation::kCeil: return give(std::ceil(a), numbers);
      case Operation::kRound: return give(std::nearbyint(a), numbers);  // as Python rounds: halves to even
      case Operation::kTrunc: return give(std::trunc(a), numbers);
      case Operation::kRoot: return give(std::sqrt(a), numbers);
      case Operation::kLess: *way = a < b; return true;
      case Operation::kLessOrEqual: *way = a <= b; return true;
      default: *way = a == b; return true;
    }
  }

  static bool give(double number, Buffer<double>* numbers) {
    numbers->push_back(number);
    return true;
  }

  bool draw(const Operation& one, Drawn& drawn, double height, double width, Buffer<double>* numbers) const {
    if (!(height >= 1 && height <= kMostSide && width >= 1 && width <= kMostSide)) return false;
    const auto rows = static_cast<int64_t>(height), columns = static_cast<int64_t>(width);
    return drawn.take(draws_.data() + one.c, rows, columns, static_cast<int64_t>(one.value), numbers);
  }

  Buffer<Node> nodes_;
  Buffer<Ending> endings_;
  Buffer<OpenStep> open_;
  Buffer<double> draws_;
  int64_t first_ = 0;
};

}  // namespace polyphase
