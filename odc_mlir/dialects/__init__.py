"""Operations, types and verifiers: ``circle`` (models), ``quant`` (types), ``odc`` (segments), ``npu`` (the device)."""
