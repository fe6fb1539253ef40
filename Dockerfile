# The commands in a container: docker build -t odc-mlir . && docker run -v "$PWD:/models" odc-mlir net_int8.tflite
FROM python:3.12-slim
COPY . /source
RUN pip install --no-cache-dir "/source[hdf5,images,native]" && rm -r /source
WORKDIR /models
ENTRYPOINT ["odc-mlir"]
