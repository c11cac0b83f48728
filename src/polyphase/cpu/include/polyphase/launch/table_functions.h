// `packed_tables.py`'s functions: tables as bytes, of which each makes new ones.
#pragma once

#include "polyphase/launch/device_tables.h"
#include "polyphase/launch/guarded.h"

namespace polyphase {

template <class T>
PyObject* as_bytes(const Buffer<T>& values) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
PyObject* as_bytes_or_none(const Buffer<T>& values) {
  return values.size() == 0 ? none() : as_bytes(values);
}

inline const int32_t* firsts(const Data& data) { return reinterpret_cast<const int32_t*>(data.data); }

// Windows whose weights have so many bytes, which are there.
inline device_tables::Windows windows_of(PyObject* first, PyObject* weight, int64_t in_size, int64_t taps, int64_t of_weight) {
  const Data begins = bytes(first), weights = bytes(weight);
  const int64_t outputs = begins.size / static_cast<int64_t>(sizeof(int32_t));
  if (taps < 0 || of_weight < 1 || weights.size < outputs * taps * of_weight) throw BadCall{"fewer weights than windows have"};
  return {firsts(begins), weights.data, in_size, outputs, taps, of_weight};
}

// A map's steps, the size of its axis, whether its adjoint is wanted, the arithmetic, and the type of weights.
inline PyObject* python_table(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    using namespace device_tables;
    if (count != 5) throw BadCall{"steps, a size, whether the adjoint is wanted, an arithmetic and a type"};
    const Data recipe = bytes(args[0]);
    const int64_t steps = recipe.size / static_cast<int64_t>(sizeof(Step));
    HostTable table;
    make_table({0, 0, integer(args[1]), integer(args[2]), steps, reinterpret_cast<const Step*>(recipe.data)},
               static_cast<Arithmetic>(integer(args[3])), static_cast<WeightType>(integer(args[4])), table);
    return tuple_of({PyLong_FromLongLong(table.in_size), PyLong_FromLongLong(table.out_size), as_bytes(table.first),
                     PyLong_FromLongLong(table.taps), as_bytes_or_none(table.weight),
                     table.listed ? as_bytes(table.index) : none(), as_bytes_or_none(table.border),
                     PyLong_FromLongLong(table.precision), PyBool_FromLong(table.ascends), PyBool_FromLong(table.descends)});
  });
}

// Where windows begin, of how many neighbours, and whether these are groups.
inline PyObject* python_spread(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 3 || integer(args[1]) < 1) throw BadCall{"where windows begin, a number of them, and whether by groups"};
    const Data begins = bytes(args[0]);
    const int64_t outputs = begins.size / static_cast<int64_t>(sizeof(int32_t));
    return PyLong_FromLongLong(device_tables::spread(firsts(begins), outputs, integer(args[1]), integer(args[2]) != 0));
  });
}

inline PyObject* python_progression(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 1) throw BadCall{"where windows begin"};
    const Data begins = bytes(args[0]);
    int64_t found[2];
    const int64_t outputs = begins.size / static_cast<int64_t>(sizeof(int32_t));
    return device_tables::is_progression(firsts(begins), outputs, found[0], found[1]) ? numbers(found, 2) : none();
  });
}

// Where windows begin, their weights, the axis' size, taps, bytes of a weight, of how many neighbours, and taps that are wanted.
inline PyObject* python_widen(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 7 || integer(args[5]) < 1) throw BadCall{"windows, of how many neighbours, and their taps"};
    const auto from = windows_of(args[0], args[1], integer(args[2]), integer(args[3]), integer(args[4]));
    device_tables::Firsts first;
    device_tables::Bytes weight;
    if (!device_tables::widen(from, integer(args[5]), integer(args[6]), first, weight)) throw BadCall{"narrower windows"};
    return tuple_of({as_bytes(first), as_bytes(weight)});
  });
}

// Where windows begin, their weights, the axis' size, taps, bytes of a weight, and columns -> `InStep`, and windows; or None.
inline PyObject* python_in_step(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 6) throw BadCall{"windows, and columns"};
    const auto from = windows_of(args[0], args[1], integer(args[2]), integer(args[3]), integer(args[4]));
    const int64_t columns = integer(args[5]);
    if (columns < 1 || columns > 15 || from.out_size == 0 || from.out_size % columns != 0) return none();
    device_tables::InStep found;
    device_tables::Firsts first;
    device_tables::Bytes weight;
    if (!device_tables::Steps(from, columns).find(found, first, weight)) return none();
    return tuple_of({PyLong_FromLongLong(found.firsts), PyLong_FromLongLong(found.edge), PyLong_FromLongLong(found.inputs),
                     PyLong_FromLongLong(found.multiple), as_bytes(first), as_bytes(weight)});
  });
}

// Where windows begin, their weights, taps, and taps that are wanted.
inline PyObject* python_in_fours(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 4) throw BadCall{"windows, and taps"};
    const auto from = windows_of(args[0], args[1], 0, integer(args[2]), sizeof(int32_t));
    device_tables::Firsts first;
    device_tables::Bytes weight;
    if (!device_tables::in_fours(from, integer(args[3]), first, weight)) throw BadCall{"narrower windows"};
    return tuple_of({as_bytes(first), as_bytes(weight)});
  });
}

// Where windows begin, their weights, taps, and bytes of a weight.
inline PyObject* python_reverse(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 4) throw BadCall{"windows"};
    const auto from = windows_of(args[0], args[1], 0, integer(args[2]), integer(args[3]));
    device_tables::Firsts first;
    device_tables::Bytes weight;
    device_tables::reverse(from, first, weight);
    return tuple_of({as_bytes(first), as_bytes(weight)});
  });
}

// Where windows begin and borders, each None where there are none, and `RowOffsets`.
inline PyObject* python_row_offsets(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 7) throw BadCall{"where windows begin, borders, and how a row lies"};
    const device_tables::RowOffsets row = {integer(args[2]), integer(args[3]), integer(args[4]), integer(args[5]),
                                           integer(args[6])};
    const int32_t* of_row[2];
    for (int i = 0; i < 2; ++i) {
      const Data data = args[i] == &_Py_NoneStruct ? Data{nullptr, 0} : bytes(args[i]);
      if (data.data != nullptr && data.size < row.out_size * static_cast<int64_t>(sizeof(int32_t))) {
        throw BadCall{"fewer windows than outputs"};
      }
      of_row[i] = firsts(data);
    }
    device_tables::Firsts offsets;
    row.fill(of_row[0], of_row[1], offsets);
    return as_bytes(offsets);
  });
}

inline PyMethodDef table_functions[] = {
    {"table", python_table, METH_FASTCALL, "The table of an axis, as packed_tables.py has it."},
    {"spread", python_spread, METH_FASTCALL, "Inputs that neighbours' windows begin at, the last less the first."},
    {"progression", python_progression, METH_FASTCALL, "(begin, step) where output i is begin + i * step; else None."},
    {"widen", python_widen, METH_FASTCALL, "Wider windows, of one or of several neighbours."},
    {"in_step", python_in_step, METH_FASTCALL, "Windows that lie alike in all groups of columns, or None."},
    {"in_fours", python_in_fours, METH_FASTCALL, "Windows that begin at multiples of 4."},
    {"reverse", python_reverse, METH_FASTCALL, "The last window first."},
    {"row_offsets", python_row_offsets, METH_FASTCALL, "Where the source's row has each element of the target's."},
};

}  // namespace polyphase
