// What `cuda/maps.py` asks of the launcher: how calls are arranged, their ways, and all of a call but addresses.
#pragma once

#include "polyphase/launch/device_maps.h"
#include "polyphase/launch/guarded.h"

namespace polyphase {

template <class T>
PyObject* as_bytes(const T* data, int64_t count) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data), count * static_cast<int64_t>(sizeof(T)));
}

inline const device::Arranged& arranged(PyObject* capsule) { return in_capsule<device::Arranged>(capsule); }

template <class T>
T read_as(PyObject* object, const char* what) {
  const Data data = bytes(object);
  if (data.size != sizeof(T)) throw BadCall{what};
  T value;
  std::memcpy(&value, data.data, sizeof(T));
  return value;
}
inline device::Way way_in(PyObject* object) {
  const auto way = read_as<device::Way>(object, "a way of another size than the launcher's");
  if (way.kernel < device::Kernel::kGeneral || way.kernel > device::Kernel::kMoved || way.threads < 1) {
    throw BadCall{"a way of no kernel"};
  }
  return way;
}

// A request, `device::Program`, whether source and target are aligned, and whether tables are made on the device -> an arranged
// call, and the axes that it merely walks along.
inline PyObject* python_arrange(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 5) throw BadCall{"arrange takes a request, a program, two alignments and where tables are made"};
  const Data request = bytes(args[0]);
  const auto program = read_as<device::Program>(args[1], "a program of another size than the launcher's");
  const device::Terms terms = {integer(args[2]) != 0, integer(args[3]) != 0, static_cast<device::Makes>(integer(args[4]))};
  auto* const call = new device::Arranged(request.data, request.size, program, terms);
  return tuple_of({capsule_of(call), PyLong_FromLongLong(call->outer_count())});
}

// `maps.About`.
inline PyObject* python_about(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) throw BadCall{"about takes an arranged call"};
  const device::Arranged& call = arranged(args[0]);
  const device::WaysOf of(call);
  const auto taps = [](const device::AxisTable& table) {
    return tuple_of({PyBool_FromLong(table.made()), PyBool_FromLong(table.made() && table.recipe().cubic != 0),
                     PyLong_FromLongLong(table.taps()), PyLong_FromLongLong(table.in_size())});
  };
  return tuple_of({PyLong_FromLongLong(of.one.planes()), PyLong_FromLongLong(of.one.channels()),
                   PyBool_FromLong(call.maps_rows_and_columns()),
                   PyBool_FromLong(of.ways.can_walk_bytes()), PyLong_FromLongLong(of.ways.cutter().layout().head),
                   call.x().there() ? taps(call.x()) : none(), call.y().there() ? taps(call.y()) : none()});
}

inline PyObject* python_own_way(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) throw BadCall{"own takes an arranged call"};
  const device::WaysOf of(arranged(args[0]));
  const device::Way way = of.ways.own();
  return as_bytes(&way, 1);
}

// An arranged call, and its own way.
inline PyObject* python_servers(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 2) throw BadCall{"servers takes an arranged call and its own way"};
  const device::Arranged& call = arranged(args[0]);
  const device::Servers servers(call.one(), call.reads_tensors(), way_in(args[1]));
  PyObject* const tuple = PyTuple_New(servers.count());
  for (int i = 0; i < servers.count(); ++i) PyTuple_SetItem(tuple, i, as_bytes(&servers[i], 1));
  return tuple;
}

// Arranged calls, and whether tiles are left out.
inline PyObject* python_way_of_all(PyObject*, PyObject* const* args, ptrdiff_t count) {
  const int64_t calls = count == 2 ? PyTuple_Size(args[0]) : 0;
  if (calls < 1) throw BadCall{"of_all takes arranged calls, and whether tiles are left out"};
  Buffer<const device::Ways*> ways;
  struct Owner {
    Buffer<device::WaysOf*> all;
    ~Owner() {
      for (device::WaysOf* one : all) delete one;
    }
  } owner;
  for (int64_t i = 0; i < calls; ++i) {
    owner.all.push_back(new device::WaysOf(arranged(PyTuple_GetItem(args[0], i))));
    ways.push_back(&owner.all.back()->ways);
  }
  const device::BatchWays of(ways);
  const device::Way way = integer(args[1]) != 0 ? of.by_windows() : of.chosen();
  return as_bytes(&way, 1);
}

// An arranged call, a kernel, and what else it is made for: taps along x and y, and of a ring columns.
inline PyObject* python_way_by(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count < 2) throw BadCall{"way_by takes an arranged call, a kernel and numbers"};
  const device::WaysOf of(arranged(args[0]));
  const auto kernel = static_cast<device::Kernel>(integer(args[1]));
  int64_t given[3] = {};
  for (ptrdiff_t i = 2; i < min<ptrdiff_t>(count, 5); ++i) given[i - 2] = integer(args[i]);
  device::Way way = of.ways.general();
  if (kernel == device::Kernel::kByteStage) way = of.ways.byte_stage(given[0], given[1]);
  if (kernel == device::Kernel::kRing) way = of.ways.ring_by(given[0], given[1], given[2]);
  return as_bytes(&way, 1);
}

// ---- prepared calls

inline PyObject* parts_of(const device::Prepared& call) {
  PyObject* const tuple = PyTuple_New(call.parts().size());
  for (int64_t i = 0; i < call.parts().size(); ++i) {
    const device::Part& part = call.parts()[i];
    PyTuple_SetItem(tuple, i, as_bytes(static_cast<const uint8_t*>(part.data), part.size));
  }
  return tuple;
}
inline PyObject* places_of(const device::Prepared& call) {
  PyObject* const tuple = PyTuple_New(call.parts().size());
  for (int64_t i = 0; i < call.parts().size(); ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(call.parts()[i].at));
  return tuple;
}
// What makes tables as if from address 0 on, where the call has their addresses, and bytes of all of them.
inline PyObject* makings_of(const device::Prepared& call) {
  Buffer<TapRecipe> recipes;
  Buffer<int64_t> places;
  int64_t at = 0;
  for (int64_t i = call.makings().size() - 1; i >= 0; --i) {  // rows' before columns', as of sized_rows.h
    const device::Making& making = call.makings()[i];
    recipes.push_back(making.recipe);
    device::place(recipes.back(), at);
    at += device::table_bytes(making.recipe);
    places.push_back(making.first_at);
    places.push_back(making.weight_at);
  }
  return tuple_of({as_bytes(recipes.data(), recipes.size()), numbers(places.data(), places.size()), PyLong_FromLongLong(at)});
}

// An arranged call, a way, and the way whose bits the result is to have -> `maps.PreparedMaps`, but for its plan.
inline PyObject* python_prepare(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 3) throw BadCall{"prepare takes an arranged call and two ways"};
  const device::Prepared call(arranged(args[0]), way_in(args[1]), way_in(args[2]));
  return tuple_of({numbers(call.cut().blocks, sizeof(device::Cut) / sizeof(int64_t)),
                   as_bytes(call.call().data(), call.call().size()), parts_of(call), places_of(call), makings_of(call),
                   PyLong_FromLongLong(call.table_count())});
}

inline PyMethodDef device_functions[] = {
    {"arrange", throwing<python_arrange>, METH_FASTCALL, "A call before its way is chosen."},
    {"about", throwing<python_about>, METH_FASTCALL, "What batches ask of it."},
    {"own_way", throwing<python_own_way>, METH_FASTCALL, "The way of its own."},
    {"servers", throwing<python_servers>, METH_FASTCALL, "Ways that can do it instead."},
    {"way_of_all", throwing<python_way_of_all>, METH_FASTCALL, "One way for many calls."},
    {"way_by", throwing<python_way_by>, METH_FASTCALL, "The way by a kernel."},
    {"prepare", throwing<python_prepare>, METH_FASTCALL, "All of a call but addresses."},
};

}  // namespace polyphase
