from enum import IntEnum

class Backend: ...

Unary: type[IntEnum]
Binary: type[IntEnum]
Reduce: type[IntEnum]

def register(device: int, instance: Backend) -> None: ...
