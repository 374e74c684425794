// The loop that makes the calls of a burst in the candidate's process, between the judge's request and the reply.
//
// What a burst costs beside its calls is what a program that serves the judge by a loop of its own could save. So it is
// little: no interpreter runs but for the calls themselves, their seeds and a look at the form of each output. Nothing
// of it can be reached as a Python object. What it reports is a claim like all else from this process.
//
// A request is a length (4 bytes), a mark (1 byte), the slot of the first call's inputs (8 bytes) and a seed (8 bytes) for
// each call; the reply a length, the mark, the
// seconds of each call (8 bytes) and the places of its outputs (8 bytes for each tensor). Other messages are left to the
// caller. `evaluators.shared.burst_message` is the judge's half.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <sys/socket.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr char kMark = 1;
constexpr size_t kHead = sizeof(uint32_t) + 1;
constexpr uint32_t kLongest = 1 << 20;

class Owned {  // a reference that is given back at the end of its scope
 public:
  explicit Owned(PyObject* object = nullptr) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Owned(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_;
};

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Reads `size` bytes, as a peek or for good. False if the other end is closed.
bool read(int descriptor, void* into, size_t size, int flags) {
  ssize_t done;
  do {
    Py_BEGIN_ALLOW_THREADS;
    done = recv(descriptor, into, size, MSG_WAITALL | flags);
    Py_END_ALLOW_THREADS;
  } while (done < 0 && errno == EINTR);
  return done == static_cast<ssize_t>(size);
}

bool write(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t sent = send(descriptor, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return false;
    done += sent > 0 ? sent : 0;
  }
  return true;
}

template <typename T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct Program {
  PyObject *model, *inputs, *prepare, *seed, *places;
};

// Adds where the tensors of an output lie. False if it has another form than expected, or with an exception set.
bool add_places(const Program& program, PyObject* output, std::string& places) {
  const Owned offsets(PyObject_CallOneArg(program.places, output));
  if (!offsets.get() || offsets.get() == Py_None) return false;
  const Py_ssize_t count = PySequence_Size(offsets.get());
  for (Py_ssize_t index = 0; index < count; ++index) {
    const Owned offset(PySequence_GetItem(offsets.get(), index));
    const int64_t value = offset.get() ? PyLong_AsLongLong(offset.get()) : -1;
    if (PyErr_Occurred()) return false;
    append(places, value);
  }
  return count >= 0;
}

// Makes the calls and adds to the reply. Returns None, or a tuple that holds the first output of another form than
// expected, or null with an exception set.
PyObject* make_calls(const Program& program, const std::vector<uint64_t>& request, std::string& reply) {
  std::string places;
  for (size_t call = 1; call < request.size(); ++call) {
    PyObject* arguments = PyList_GetItem(program.inputs, static_cast<Py_ssize_t>(request[0] + call - 1));
    if (!arguments) return nullptr;
    const Owned seed(PyLong_FromUnsignedLongLong(request[call]));
    if (!seed.get() || !Owned(PyObject_CallNoArgs(program.prepare)).get() ||
        !Owned(PyObject_CallOneArg(program.seed, seed.get())).get())
      return nullptr;
    const double start = now();
    const Owned output(PyObject_Call(program.model, arguments, nullptr));
    if (!output.get()) return nullptr;
    if (!add_places(program, output.get(), places)) return PyErr_Occurred() ? nullptr : PyTuple_Pack(1, output.get());
    append(reply, now() - start);  // with the copy of an output that lies elsewhere
  }
  reply += places;
  Py_RETURN_NONE;
}

}  // namespace

// Serves bursts until another message waits, or none will come any more: then it returns None. Instead of a reply
// it returns an output of another form than expected, in a tuple, or raises what a call raises.
//
// `inputs`: a list with the arguments of each call, as tuples. `forget()` comes before the first call of a burst,
// `prepare()` and `seed(number)` before each. `places(output)`: where its tensors lie, or None for another form.
extern "C" PyObject* warpsmith_serve_bursts(int descriptor, PyObject* model, PyObject* inputs, PyObject* forget,
                                            PyObject* prepare, PyObject* seed, PyObject* places) {
  const Program program{model, inputs, prepare, seed, places};
  for (;;) {
    char head[kHead];
    if (!read(descriptor, head, kHead, MSG_PEEK) || head[sizeof(uint32_t)] != kMark) Py_RETURN_NONE;
    uint32_t length;
    std::memcpy(&length, head, sizeof(length));
    std::vector<uint64_t> request(length / sizeof(uint64_t));
    if (length > kLongest || request.empty() || length != 1 + request.size() * sizeof(uint64_t)) Py_RETURN_NONE;
    if (!read(descriptor, head, kHead, 0) || !read(descriptor, request.data(), length - 1, 0)) Py_RETURN_NONE;
    if (!Owned(PyObject_CallNoArgs(forget)).get()) return nullptr;
    std::string reply(sizeof(uint32_t), '\0');
    reply += kMark;
    Owned strange(make_calls(program, request, reply));
    if (strange.get() != Py_None) return strange.release();
    const uint32_t size = static_cast<uint32_t>(reply.size() - sizeof(uint32_t));
    std::memcpy(reply.data(), &size, sizeof(size));
    if (!write(descriptor, reply)) Py_RETURN_NONE;
  }
}
