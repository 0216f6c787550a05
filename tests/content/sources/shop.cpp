#include <string>
#include <vector>

namespace shop {

template <typename T>
class Order : public Base<T> {
 public:
  explicit Order(int number) : number_(number) {}
  virtual ~Order() = default;
  bool operator<(const Order& other) const { return number_ < other.number_; }
  std::string label() const;

 private:
  int number_;
};

struct Line {
  int price = 0;
};

enum class State { kOpen, kClosed };

using Lines = std::vector<Line>;

std::string Order<int>::label() const {
  return std::to_string(number_);
}

const Line& first(const Lines& lines) { return lines.front(); }

}  // namespace shop
