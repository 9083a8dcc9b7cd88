"""Classes of messages as `protoc` makes them, without `protoc`."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

DOUBLE, FLOAT, INT64, UINT64, INT32, BOOL, STRING, MESSAGE, BYTES, UINT32, ENUM, SINT32 = (
    1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 14, 17,
)  # fmt: skip
ONE, MANY = 1, 3
KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2)


def field(
    message: Any, name: str, number: int, kind: int, label: int = ONE, of: str = "", oneof: int | None = None
) -> None:
    made = message.field.add(name=name, number=number, type=kind, label=label)
    if of:
        made.type_name = of
    if oneof is not None:
        made.oneof_index = oneof


def common_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop/common.proto", package="shop", syntax="proto3")
    address = file.message_type.add(name="Address")
    field(address, "city", 1, STRING)
    return file


def order_file(first: str = "") -> Any:
    """``first``: a message that stands before the others."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/common.proto", *(one.DESCRIPTOR.name for one in KNOWN)],
    )
    if first:
        file.message_type.add(name=first)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID", "SENT")):
        state.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    field(item, "sku", 1, STRING)
    field(item, "count", 2, INT32)
    field(item, "state", 3, ENUM, of=".shop.State")
    tags = order.nested_type.add(name="TagsEntry")
    tags.options.map_entry = True
    field(tags, "key", 1, STRING)
    field(tags, "value", 2, INT64)
    places = order.nested_type.add(name="PlacesEntry")
    places.options.map_entry = True
    field(places, "key", 1, INT32)
    field(places, "value", 2, MESSAGE, of=".shop.Address")
    order.oneof_decl.add(name="pay")
    order.oneof_decl.add(name="_note")
    field(order, "id", 1, INT64)
    field(order, "customer", 2, STRING)
    field(order, "price", 3, DOUBLE)
    field(order, "items", 4, MESSAGE, MANY, ".shop.Order.Item")
    field(order, "tags", 5, MESSAGE, MANY, ".shop.Order.TagsEntry")
    field(order, "state", 6, ENUM, of=".shop.State")
    field(order, "at", 7, MESSAGE, of=".google.protobuf.Timestamp")
    field(order, "vip", 8, MESSAGE, of=".google.protobuf.BoolValue")
    field(order, "raw", 9, BYTES)
    field(order, "card", 10, STRING, oneof=0)
    field(order, "cash", 11, INT32, oneof=0)
    field(order, "note", 12, STRING, oneof=1)
    order.field[-1].proto3_optional = True
    field(order, "address", 13, MESSAGE, of=".shop.Address")
    field(order, "numbers", 14, UINT32, MANY)
    field(order, "hash", 15, UINT64)
    field(order, "took", 16, MESSAGE, of=".google.protobuf.Duration")
    field(order, "weight", 17, FLOAT)
    field(order, "states", 18, ENUM, MANY, ".shop.State")
    field(order, "gift", 19, BOOL)
    field(order, "change", 20, SINT32)
    field(order, "places", 21, MESSAGE, MANY, ".shop.Order.PlacesEntry")
    key = file.message_type.add(name="Key")
    field(key, "shop", 1, STRING)
    field(key, "id", 2, INT64)
    field(key, "rate", 3, DOUBLE)
    tree = file.message_type.add(name="Tree")
    field(tree, "name", 1, STRING)
    field(tree, "children", 2, MESSAGE, MANY, ".shop.Tree")
    return file


def made(*files: Any) -> Any:
    """A pool with these files, and those that Protobuf has."""
    pool = descriptor_pool.DescriptorPool()
    for one in KNOWN:
        pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def message(pool: Any, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


_POOL = made(common_file(), order_file())
Order, Item, Key, Tree, Address = (
    message(_POOL, f"shop.{name}") for name in ("Order", "Order.Item", "Key", "Tree", "Address")
)
