"""File formats: conversion of bytes to plain records and back, without IR."""
